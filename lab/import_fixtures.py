"""Makes small data sets with the annotation tools' own packages, for test/data/import/test_written.c: what they write,
not what their documentation says. All have the same two pictures and four objects.

  python3 -m venv V && V/bin/pip install labelme==5.5.0 label-studio-converter==0.0.59 supervision==0.31.2 \\
    datumaro==1.10.0 cellpose==4.2.1.1 PyQt5
  V/bin/python lab/import_fixtures.py test/exports/written [NAME…]

Nothing of a package is copied: pictures and annotations are this script's.
"""
import json, os, sys, uuid
import numpy as np
from PIL import Image

H, W = 30, 40
PLATE = [(5, 4), (17, 4), (17, 20), (5, 20)]  # 12 × 16 pixels


def ring():
    """A mask with a hole and a part of its own."""
    m = np.zeros((H, W), np.uint8)
    m[6:16, 22:36] = 1
    m[9:12, 26:30] = 0
    m[20:23, 30:33] = 1
    return m


def box():
    m = np.zeros((H, W), np.uint8)
    m[4:20, 5:17] = 1
    return m


def picture(path, k):
    os.makedirs(os.path.dirname(path), exist_ok=True)
    Image.fromarray(np.full((H, W, 3), 60 + 40 * k, np.uint8)).save(path)


def labelme(out):
    from labelme.label_file import LabelFile
    from labelme.utils import img_arr_to_b64
    picture(out + '/b.png', 1)
    for k, name in enumerate('ab'):
        data = None
        if name == 'a':
            picture(out + '/a.png', 0)
            data = LabelFile.load_image_file(out + '/a.png')
            os.remove(out + '/a.png')  # what is left is imageData
        m = ring()[6:23, 22:36]
        shape = lambda label, points, kind, **more: dict(label=label, points=points, group_id=None, description='',
                                                        shape_type=kind, flags={}, **more)
        LabelFile().save(out + '/%s.json' % name, [
            shape('plate', [list(map(float, p)) for p in PLATE], 'polygon', mask=None),
            shape('ring', [[22., 6.], [35., 22.]], 'mask', mask=img_arr_to_b64(m.astype(np.uint8)))],
            name + '.png', H, W, data)


def label_studio(out):
    from label_studio_converter import brush
    tasks = []
    for k, name in enumerate('ab'):
        picture(out + '/%s.png' % name, k)
        rle = [int(v) for v in brush.mask2rle(ring() * 255)]
        result = lambda kind, label, **value: dict(id=str(uuid.UUID(int=len(tasks))) + kind, type=kind, original_width=W,
                                                   original_height=H, image_rotation=0, from_name='l', to_name='i',
                                                   value={**value, kind: [label]})
        tasks.append(dict(id=k, data={'image': '/data/upload/1/%08x-%s.png' % (k, name)}, annotations=[dict(
            id=k, was_cancelled=False, ground_truth=False, result=[
                result('polygonlabels', 'plate', points=[[100 * x / W, 100 * y / H] for x, y in PLATE], closed=True),
                result('brushlabels', 'ring', format='rle', rle=rle)])], predictions=[]))
    json.dump(tasks, open(out + '/project.json', 'w'))


def supervision(out):
    import supervision as sv
    names, annotations, images = ['plate', 'ring'], {}, []
    for k, name in enumerate('ab'):
        path = out + '/in/%s.png' % name
        picture(path, k)
        masks = np.stack([box(), ring()]).astype(bool)
        annotations[path] = sv.Detections(xyxy=sv.mask_to_xyxy(masks).astype(float), mask=masks, class_id=np.array([0, 1]))
        images.append(path)
    set_ = sv.DetectionDataset(classes=names, images=images, annotations=annotations)
    set_.as_yolo(images_directory_path=out + '/images', annotations_directory_path=out + '/labels',
                 data_yaml_path=out + '/data.yaml')
    for p in images: os.remove(p)
    os.rmdir(out + '/in')


def _datumaro(out, form):
    import datumaro as dm
    items = []
    for k, name in enumerate('ab'):
        items.append(dm.DatasetItem(
            id=name, subset='train' if k == 0 else 'val', media=dm.Image.from_numpy(np.full((H, W, 3), 60 + 40 * k, np.uint8)),
            annotations=[
                dm.Polygon([float(v) for p in PLATE for v in p], label=0, id=1, group=1) if form == 'cvat' else
                dm.Mask(box().astype(bool), label=0, id=1, group=1),
                dm.Mask(ring().astype(bool), label=1, id=2, group=2)]))
    set_ = dm.Dataset.from_iterable(items, categories=['plate', 'ring'])
    set_.export(out, form, save_media=True)


def datumaro_cvat(out):
    _datumaro(out, 'cvat')


def datumaro_voc(out):
    _datumaro(out, 'voc_segmentation')


def cellpose(out):
    from cellpose import io
    for k, name in enumerate('ab'):
        picture(out + '/%s.png' % name, k)
        masks = box().astype(np.int32) + 2 * ring()
        io.save_masks(np.array(Image.open(out + '/%s.png' % name)), masks, [np.zeros((3, H, W))] * 3,
                      out + '/%s.png' % name, png=True, tif=True)


if __name__ == '__main__':
    makers = {f.__name__: f for f in (labelme, label_studio, supervision, datumaro_cvat, datumaro_voc, cellpose)}
    for name in sys.argv[2:] or makers:
        os.makedirs(sys.argv[1] + '/' + name, exist_ok=True)
        makers[name](sys.argv[1] + '/' + name)
