"""torchvision's Mask R-CNN R50-FPN on the weights and images of ./infer, bf16 autocast, channels_last: from uint8 RGB in
host memory to pasted masks on the GPU (and without pasting), 100 detections an image. Prints JSON lines."""
import json, sys, time, glob, os, struct
import torch, torchvision
from torchvision.models.detection import MaskRCNN
from torchvision.models.detection.backbone_utils import resnet_fpn_backbone
from torchvision.ops import misc
weights, data = sys.argv[1:3]
def load(path):
    f = open(path, 'rb'); n = struct.unpack('<Q', f.read(8))[0]; h = json.loads(f.read(n)); base = 8 + n
    dt = {'F32': torch.float32, 'I64': torch.int64, 'F16': torch.float16, 'BF16': torch.bfloat16}
    out = {}
    for k, v in h.items():
        if k == '__metadata__': continue
        f.seek(base + v['data_offsets'][0]); b = f.read(v['data_offsets'][1] - v['data_offsets'][0])
        out[k] = torch.frombuffer(bytearray(b), dtype=dt[v['dtype']]).reshape(v['shape'])
    return out
sd = load(weights)
bb = resnet_fpn_backbone(backbone_name='resnet50', weights=None, norm_layer=misc.FrozenBatchNorm2d, trainable_layers=3)
m = MaskRCNN(bb, sd['roi_heads.box_predictor.cls_score.weight'].shape[0], min_size=800, max_size=1333, box_score_thresh=0.0)
missing, unexpected = m.load_state_dict(sd, strict=False)
print('missing', [k for k in missing][:5], 'unexpected', [k for k in unexpected][:5], file=sys.stderr)
m = m.cuda().eval().to(memory_format=torch.channels_last)
ann = json.load(open(glob.glob(data + '/annotations/instances_train*.json')[0]))
images = [torchvision.io.decode_image(glob.glob(f"{data}/train2017/{i['file_name']}")[0], torchvision.io.ImageReadMode.RGB).pin_memory() for i in ann['images'][:72]]
paste = m.transform.postprocess
def run(n, pasted, steps=20, warm=5):
    m.transform.postprocess = paste if pasted else (lambda r, a, b: r)
    torch.cuda.reset_peak_memory_stats(); times = []; dets = 0
    with torch.inference_mode():
        for s in range(warm + steps):
            batch = [images[(s * n + k) % len(images)] for k in range(n)]
            torch.cuda.synchronize(); t = time.perf_counter()
            x = [b.cuda(non_blocking=True).float().div_(255) for b in batch]
            with torch.autocast('cuda', dtype=torch.bfloat16): out = m(x)
            if pasted: masks = [o['masks'] >= 0.5 for o in out]
            torch.cuda.synchronize()
            if s >= warm: times.append(time.perf_counter() - t); dets += sum(len(o['boxes']) for o in out)
    times.sort(); med = times[len(times)//2]
    print(json.dumps(dict(peer='torchvision ' + torchvision.__version__, kind='infer', batch=n, pasted=pasted, ms=round(med*1e3,2), img_s=round(n/med,1), detections_per_image=dets/(steps*n), peak_bytes=torch.cuda.max_memory_allocated())), flush=True)
for n in (1, 8, 24):
    for pasted in (True, False): run(n, pasted, steps=8 if n > 1 else 20)
