"""Writes test/goldens/boundary.json: what the authors' code of boundary IoU says of files of ../shared/data/cocoeval.

    git clone https://github.com/bowenc0221/boundary-iou-api DIR
    python3 -m venv /tmp/venv && /tmp/venv/bin/pip install pycocotools opencv-python-headless
    /tmp/venv/bin/python test/peers/boundary_goldens.py --boundary-api DIR [--shared ../shared]

Made with its commit 37d2558. A section for each folder, as those of the data's own expected.json:
{"stats": {"AP": …}, "per_category": {"1": {"AP", "AP50", "AR_100"}, …}}.
"""
import argparse
import json
import os

from compare_pycocotools import STATS, expected, load_boundary_api

FILES = {"cocoapi_val2014_100": ("gt.json", "dt_segm.json"),
         "fce_small": ("gt_dataset.json", "dt_dataset_segm_only.json")}


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--boundary-api", metavar="DIR", required=True)
    parser.add_argument("--shared", default="../shared")
    args = parser.parse_args()
    api = load_boundary_api(args.boundary_api)
    sections = {}
    for folder, names in FILES.items():
        gt, dt = (json.load(open(os.path.join(args.shared, "data/cocoeval", folder, name))) for name in names)
        figures = expected(gt, dt, "boundary", api=api)
        sections[folder] = {"stats": {key: figures[key] for key in STATS},
                            "per_category": {str(c["id"]): {key: figures[f"{c['id']} {key}"]
                                                            for key in ("AP", "AP50", "AR_100")}
                                             for c in gt["categories"]}}
    with open("test/goldens/boundary.json", "w") as f:
        json.dump(sections, f, separators=(",", ":"))
        f.write("\n")


if __name__ == "__main__":
    main()
