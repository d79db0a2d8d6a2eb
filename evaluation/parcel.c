#include "evaluation/parcel.h"
#include <stdlib.h>
#include <string.h>
#include "base/alloc.h"

void parcel_put(Parcel *p, const void *from, size_t bytes) {
  if (!bytes) return;
  array_reserve((void **)&p->data, &p->room, p->bytes + bytes, 1);
  memcpy(p->data + p->bytes, from, bytes);
  p->bytes += bytes;
}

void parcel_empty(Parcel *p) { p->bytes = 0; }

void parcel_free(Parcel *p) {
  free(p->data);
  *p = (Parcel){0};
}

bool parcel_take_part(Unpacking *u, Unpacking *part, size_t bytes) {
  if (bytes > u->left) {
    *u = (Unpacking){0};
    return false;
  }
  *part = (Unpacking){u->at, bytes};
  u->at += bytes;
  u->left -= bytes;
  return true;
}

bool parcel_take(Unpacking *u, void *to, size_t bytes) {
  Unpacking part;
  if (!parcel_take_part(u, &part, bytes)) return false;
  if (bytes) memcpy(to, part.at, bytes);
  return true;
}
