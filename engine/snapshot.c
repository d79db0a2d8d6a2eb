#include "engine/snapshot.h"
#include "base/alloc.h"

void snapshot_plan(Snapshot *s, const Params *p) {
  const size_t real = dtype_size(p->dev->real);
  size_t largest = 0;
  for (int i = 0; i < p->n; i++) largest = MAX(largest, param_elements(p->list[i]) * sizeof(float));
  *s = (Snapshot){.params = p,
                  .masters = p->elements * real,
                  .momentum = p->trainable * real,
                  .second = params_second_bytes(p),
                  .average = params_average_bytes(p)};
  const size_t all = s->masters + s->momentum + s->second + s->average;
  s->staged_bytes = p->dev->gpu ? all : 0;
  s->host_bytes = all + largest;
}

bool snapshot_allocate(Snapshot *s, Err *err) {
  if (!s->params) return true;
  Device *dev = s->params->dev;
  if (s->staged_bytes && !(s->staged = device_alloc(dev, s->staged_bytes)))
    return err_memory(err, s->staged_bytes, "a checkpoint on the GPU", "--model");
  if (!(s->host = device_host_alloc(dev, s->host_bytes)))
    return err_memory(err, s->host_bytes, "a checkpoint on the host", "--model");
  s->values = (float *)(s->host + s->masters + s->momentum + s->second + s->average);
  return true;
}

void snapshot_free(Snapshot *s) {
  if (s->staged) device_free(s->params->dev, s->staged);
  if (s->host) device_host_free(s->params->dev, s->host);
  *s = (Snapshot){0};
}

void snapshot_take(Snapshot *s) {
  const Params *p = s->params;
  const struct {
    const void *from;
    size_t bytes;
  } part[] = {{p->master, s->masters}, {p->momentum, s->momentum}, {p->second, s->second}, {p->average, s->average}};
  size_t at = 0;
  for (int i = 0; i < COUNT(part); at += part[i++].bytes) {
    if (!part[i].bytes) continue;
    if (s->staged)
      device_copy(p->dev, (char *)s->staged + at, part[i].from, part[i].bytes);
    else
      device_save(p->dev, s->host + at, part[i].from, part[i].bytes);
  }
  const size_t trained = p->trainable * dtype_size(p->dev->real);
  if (s->untrained) device_save(p->dev, s->host + trained, s->untrained, s->masters - trained);
  if (s->staged) device_save(p->dev, s->host, s->staged, at);
}

bool snapshot_wait(const Snapshot *s) { return device_save_wait(s->params->dev); }

const float *snapshot_values(const Snapshot *s, const Param *q, SnapshotPart part) {
  const Params *p = s->params;
  const struct {
    Tensor what;
    const void *flat;
    size_t at; // position in the snapshot
  } parts[] = {[SNAPSHOT_MASTER] = {q->master, p->master, 0},
               [SNAPSHOT_MOMENTUM] = {q->momentum, p->momentum, s->masters},
               [SNAPSHOT_SECOND] = {q->second, p->second, s->masters + s->momentum},
               [SNAPSHOT_AVERAGE] = {q->average, p->average, s->masters + s->momentum + s->second}};
  Tensor t = parts[part].what;
  t.data = s->host + parts[part].at + ((const char *)t.data - (const char *)parts[part].flat);
  param_to_torch(q, &t, s->values);
  return s->values;
}

bool snapshot_adam(const Snapshot *s, double state[ADAM_STATE]) {
  const Params *p = s->params;
  const void *at = s->host + s->masters + s->momentum + p->trainable * dtype_size(p->dev->real);
  for (int i = 0; p->adam && i < ADAM_STATE; i++)
    state[i] = p->dev->real == F64 ? ((const double *)at)[i] : (double)((const float *)at)[i];
  return p->adam;
}
