#include "engine/snapshot.h"

void snapshot_plan(Snapshot *s, const Params *p) {
  const size_t real = dtype_size(p->dev->real);
  size_t largest = 0;
  for (int i = 0; i < p->n; i++) largest = MAX(largest, param_elements(p->list[i]) * sizeof(float));
  *s = (Snapshot){.params = p, .masters = p->elements * real, .momentum = p->trainable * real};
  s->staged_bytes = p->dev->gpu ? s->masters + s->momentum : 0;
  s->host_bytes = s->masters + s->momentum + largest;
}

bool snapshot_allocate(Snapshot *s, Err *err) {
  if (!s->params) return true;
  Device *dev = s->params->dev;
  if (s->staged_bytes && !(s->staged = device_alloc(dev, s->staged_bytes)))
    return err_memory(err, s->staged_bytes, "a checkpoint on the GPU", "--model");
  if (!(s->host = device_host_alloc(dev, s->host_bytes)))
    return err_memory(err, s->host_bytes, "a checkpoint on the host", "--model");
  s->values = (float *)(s->host + s->masters + s->momentum);
  return true;
}

void snapshot_free(Snapshot *s) {
  if (s->staged) device_free(s->params->dev, s->staged);
  if (s->host) device_host_free(s->params->dev, s->host);
  *s = (Snapshot){0};
}

void snapshot_take(Snapshot *s) {
  const Params *p = s->params;
  if (!s->staged) {
    device_save(p->dev, s->host, p->master, s->masters);
    device_save(p->dev, s->host + s->masters, p->momentum, s->momentum);
    return;
  }
  device_copy(p->dev, s->staged, p->master, s->masters);
  device_copy(p->dev, (char *)s->staged + s->masters, p->momentum, s->momentum);
  device_save(p->dev, s->host, s->staged, s->masters + s->momentum);
}

bool snapshot_wait(const Snapshot *s) { return device_save_wait(s->params->dev); }

const float *snapshot_values(const Snapshot *s, const Param *q, bool momentum) {
  const Params *p = s->params;
  Tensor t = momentum ? q->momentum : q->master;
  const size_t offset = (size_t)((char *)t.data - (char *)(momentum ? p->momentum : p->master));
  t.data = s->host + (momentum ? s->masters : 0) + offset;
  param_to_torch(q, &t, s->values);
  return s->values;
}
