// Reads files written by torch.save: a pickle that describes tensors, and their storages. Since PyTorch 1.6 both are
// members of a zip archive (PREFIX/data.pkl, PREFIX/data/KEY); before, a plain file held several pickles followed by
// the storages (torch/serialization.py, _legacy_save). Values stay in the mapped file if a tensor is dense there.
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include "base/alloc.h"
#include "weights/formats.h"
#include "weights/pickle.h"
#include "weights/zip.h"

typedef struct Storage {
  const char *key;
  CkptType type;
  int64_t elements;
  const unsigned char *data; // NULL until it is found
} Storage;

typedef struct TorchReader {
  Checkpoint *c;
  const char *path;
  Storage *storages; // by key
  size_t num_storages, cap_storages;
  size_t gathered; // total size of tensors that had to be copied because they were not dense
  Err *err;
} TorchReader;

static const struct {
  const char *name;
  CkptType type;
} storage_types[] = {{"torch.FloatStorage", CKPT_F32}, {"torch.DoubleStorage", CKPT_F64},
                     {"torch.HalfStorage", CKPT_F16},  {"torch.BFloat16Storage", CKPT_BF16},
                     {"torch.LongStorage", CKPT_I64},  {"torch.IntStorage", CKPT_I32},
                     {"torch.ShortStorage", CKPT_I16}, {"torch.CharStorage", CKPT_I8},
                     {"torch.ByteStorage", CKPT_U8},   {"torch.BoolStorage", CKPT_BOOL}};
static const char rebuild_v1[] = "torch._utils._rebuild_tensor", rebuild_v2[] = "torch._utils._rebuild_tensor_v2";
static const char rebuild_parameter[] = "torch._utils._rebuild_parameter", parameter[] = "torch.nn.parameter.Parameter";

static bool read_pickle(TorchReader *r, Pickle *p, const unsigned char **at, const unsigned char *end) {
  const char *globals[COUNT(storage_types) + 7] = {rebuild_v1, rebuild_v2, rebuild_parameter, parameter,
                                                   // beside the model in checkpoints of torchvision's reference scripts
                                                   "argparse.Namespace", "collections.Counter"};
  for (int i = 0; i < COUNT(storage_types); i++) globals[6 + i] = storage_types[i].name;
  return pickle_read(p, at, end, globals, r->path, r->err);
}

static const char big_endian[] = "it is big-endian; load it with PyTorch and save it on a little-endian machine";

static bool unusable(const TorchReader *r, const char *what) {
  return err_set(r->err, "%s: not a valid PyTorch file: %s", r->path, what);
}

// Makes a name printable in a message, which is one line.
static bool is_printable(const char *text) {
  for (; *text; text++)
    if ((unsigned char)*text < 0x20) return false;
  return true;
}

// ---- storages ---------------------------------------------------------------------------------------------------

static int compare_storage(const void *a, const void *b) {
  return strcmp(((const Storage *)a)->key, ((const Storage *)b)->key);
}

static Storage *find_storage(const TorchReader *r, const char *key) {
  if (r->num_storages == 0) return NULL;
  return bsearch(&(Storage){.key = key}, r->storages, r->num_storages, sizeof *r->storages, compare_storage);
}

// A storage's id is the tuple ("storage", type, key, device, elements[, view of another, long obsolete]).
static bool parse_storage(const TorchReader *r, const PickleValue *persistent, Storage *s) {
  const PickleValue *id = persistent->item[0];
  if (id->type != PICKLE_TUPLE || id->n < 5 || id->item[0]->type != PICKLE_STR || id->item[1]->type != PICKLE_GLOBAL ||
      id->item[2]->type != PICKLE_STR || id->item[4]->type != PICKLE_INT || strcmp(id->item[0]->text, "storage"))
    return unusable(r, "it refers to an object that is not a storage");
  if (id->n > 5 && id->item[5]->type != PICKLE_NONE) return unusable(r, "one of its storages is a view of another");
  *s = (Storage){.key = id->item[2]->text, .elements = id->item[4]->integer};
  if (!is_printable(s->key)) return unusable(r, "a storage's name has control characters");
  if (s->elements < 0 || s->elements > INT64_MAX / 8) return unusable(r, "a storage has an impossible size");
  for (int i = 0; i < COUNT(storage_types); i++)
    if (!strcmp(storage_types[i].name, id->item[1]->text)) {
      s->type = storage_types[i].type;
      return true;
    }
  return unusable(r, "a storage has an unknown type");
}

// One entry for each storage, however often tensors refer to it.
static bool list_storages(TorchReader *r, const Pickle *p) {
  for (size_t i = 0; i < p->num_persistent; i++) {
    Storage s;
    if (!parse_storage(r, p->persistent[i], &s)) return false;
    array_reserve((void **)&r->storages, &r->cap_storages, r->num_storages + 1, sizeof s);
    r->storages[r->num_storages++] = s;
  }
  if (r->num_storages == 0) return unusable(r, "it holds no tensors");
  qsort(r->storages, r->num_storages, sizeof *r->storages, compare_storage);
  size_t kept = 1;
  for (size_t i = 1; i < r->num_storages; i++) {
    const Storage *s = &r->storages[i], *last = &r->storages[kept - 1];
    if (compare_storage(s, last))
      r->storages[kept++] = *s;
    else if (s->type != last->type || s->elements != last->elements)
      return unusable(r, "two tensors disagree about their storage");
  }
  r->num_storages = kept;
  return true;
}

// Sets a storage's values.
static bool store_data(const TorchReader *r, Storage *s, const unsigned char *data, size_t bytes) {
  s->data = data;
  return bytes == (size_t)s->elements * ckpt_type_size(s->type) ||
         err_set(r->err, "%s: not a valid PyTorch file: storage %.50s has %zu bytes, but should have %" PRId64 " %s",
                 r->path, s->key, bytes, s->elements, ckpt_type_name(s->type));
}

// ---- tensors ----------------------------------------------------------------------------------------------------

// A tensor before validation: a view of a storage.
typedef struct View {
  CkptTensor t;
  const Storage *storage;
  int64_t offset, stride[CKPT_MAX_DIMS]; // elements
} View;

static bool bad_tensor(const TorchReader *r, const char *name, const char *what) {
  return err_set(r->err, "%s: not a valid PyTorch file: tensor \"%.100s\" %s", r->path, name, what);
}

static bool is_call(const PickleValue *v, const char *name) {
  return v->type == PICKLE_CALL && !strcmp(v->item[0]->text, name);
}

// The call that makes the tensor's data; NULL if the value is not a tensor. A parameter wraps a tensor: its data is the
// first argument or, before PyTorch 0.4, the first item of its state.
static const PickleValue *tensor_call(const PickleValue *v) {
  if (is_call(v, rebuild_parameter) || is_call(v, parameter)) {
    const PickleValue *from = v->item[1]->n ? v->item[1] : v->n > 2 ? v->item[2] : NULL;
    if (!from || from->type != PICKLE_TUPLE || from->n == 0) return NULL;
    v = from->item[0];
  }
  return is_call(v, rebuild_v1) || is_call(v, rebuild_v2) ? v : NULL;
}

static bool read_dims(const PickleValue *v, int64_t *out) {
  for (size_t i = 0; i < v->n; i++) {
    if (v->item[i]->type != PICKLE_INT || v->item[i]->integer < 0) return false;
    out[i] = v->item[i]->integer;
  }
  return true;
}

// The arguments are (storage, offset, size, stride, requires_grad, hooks, state), of which the last is only written for
// tensors that are the negative or the conjugate of what is stored.
static bool parse_view(const TorchReader *r, const char *name, const PickleValue *arguments, View *v) {
  PickleValue *const *a = arguments->item;
  if (arguments->n < 4 || a[0]->type != PICKLE_PERSISTENT || a[1]->type != PICKLE_INT || a[2]->type != PICKLE_TUPLE ||
      a[3]->type != PICKLE_TUPLE)
    return bad_tensor(r, name, "is not built by a known tensor constructor");
  if (arguments->n > 6 && a[6]->type != PICKLE_NONE && a[6]->n > 0)
    return bad_tensor(r, name, "is the negative of what is stored; save its resolve_neg()");
  v->storage = find_storage(r, a[0]->item[0]->item[2]->text);
  v->offset = a[1]->integer;
  if (a[2]->n > CKPT_MAX_DIMS) return bad_tensor(r, name, "has more than eight dimensions");
  if (v->offset < 0 || a[2]->n != a[3]->n || !read_dims(a[2], v->t.dims) || !read_dims(a[3], v->stride))
    return bad_tensor(r, name, "has an impossible size");
  v->t.type = v->storage->type;
  v->t.ndim = (int)a[2]->n;
  return true;
}

// Counts the elements and checks that the last one lies in the storage.
static bool check_view(const TorchReader *r, const char *name, View *v) {
  CkptTensor *t = &v->t;
  int64_t last = v->offset, step;
  t->elements = 1;
  for (int i = 0; i < t->ndim; i++)
    if (__builtin_mul_overflow(t->elements, (size_t)t->dims[i], &t->elements))
      return bad_tensor(r, name, "has more elements than fit in 64 bits");
  if (__builtin_mul_overflow(t->elements, ckpt_type_size(t->type), &t->bytes) || t->bytes > INT64_MAX)
    return bad_tensor(r, name, "has more bytes than fit in 64 bits");
  if (t->elements == 0) return true;
  for (int i = 0; i < t->ndim; i++) {
    if (t->dims[i] == 1) v->stride[i] = 0; // the stride is never used
    if (__builtin_mul_overflow(t->dims[i] - 1, v->stride[i], &step) || __builtin_add_overflow(last, step, &last))
      return bad_tensor(r, name, "ends past its storage");
  }
  return last < v->storage->elements || bad_tensor(r, name, "ends past its storage");
}

static bool is_dense(const View *v) {
  int64_t stride = 1;
  for (int i = v->t.ndim - 1; i >= 0; i--) {
    if (v->t.dims[i] != 1 && v->stride[i] != stride) return false;
    stride *= v->t.dims[i];
  }
  return true;
}

// How much larger than the file its strided tensors may be in all: those of stride 0 repeat what is stored once.
enum { MAX_REPEATED = 64 << 20 };

// Copies a transposed, expanded or otherwise strided tensor to row-major order.
static bool gather(TorchReader *r, const char *name, View *v) {
  CkptTensor *t = &v->t;
  size_t size = ckpt_type_size(t->type);
  if (t->bytes > r->c->size + MAX_REPEATED - r->gathered)
    return bad_tensor(r, name,
                      "and those before it are larger than their storages by more than 64 MiB; save a clone()");
  r->gathered += t->bytes;
  unsigned char *out = ckpt_own(r->c, xmalloc(t->bytes));
  t->data = out;
  int64_t index[CKPT_MAX_DIMS] = {0}, at = v->offset;
  for (size_t n = 0; n < t->elements; n++) {
    memcpy(out + n * size, v->storage->data + (size_t)at * size, size);
    for (int i = t->ndim - 1; i >= 0; i--) { // increments the index like an odometer
      at += v->stride[i];
      if (++index[i] < t->dims[i]) break;
      at -= index[i] * v->stride[i];
      index[i] = 0;
    }
  }
  return true;
}

static bool add_tensor(TorchReader *r, const char *name, const PickleValue *call) {
  View v = {.t.name = name};
  if (!is_printable(name)) return unusable(r, "a tensor's name has control characters");
  if (strlen(name) >= CKPT_MAX_NAME) return unusable(r, "a tensor's name is too long");
  if (!parse_view(r, name, call->item[1], &v) || !check_view(r, name, &v)) return false;
  if (v.t.elements == 0)
    v.t.data = r->c->bytes;
  else if (is_dense(&v))
    v.t.data = v.storage->data + (size_t)v.offset * ckpt_type_size(v.t.type);
  else if (!gather(r, name, &v))
    return false;
  v.t.name = ckpt_own(r->c, xstrdup(name));
  ckpt_add(r->c, &v.t);
  return true;
}

// ---- the dict of tensors ----------------------------------------------------------------------------------------

static size_t count_tensors(const PickleValue *dict) {
  size_t n = 0;
  for (size_t i = 0; dict->type == PICKLE_DICT && i < dict->n; i += 2)
    n += dict->item[i]->type == PICKLE_STR && tensor_call(dict->item[i + 1]);
  return n;
}

// The root, or else its member with the most tensors: {"model": …, "optimizer": …}. NULL = neither has any.
static const PickleValue *find_dict(const PickleValue *root, const char **member) {
  *member = NULL;
  size_t most = count_tensors(root);
  const PickleValue *best = most ? root : NULL;
  if (root->type != PICKLE_DICT) return best;
  for (size_t i = 0; i < root->n; i += 2) {
    size_t n = root->item[i]->type == PICKLE_STR ? count_tensors(root->item[i + 1]) : 0;
    if (n <= most || !is_printable(root->item[i]->text)) continue;
    most = n;
    best = root->item[i + 1];
    *member = root->item[i]->text;
  }
  return best;
}

static bool add_tensors(TorchReader *r, const PickleValue *root) {
  const char *member;
  const PickleValue *dict = find_dict(root, &member);
  if (!dict) return unusable(r, "it contains no dict of tensors; save model.state_dict()");
  if (member) r->c->note = ckpt_own(r->c, xasprintf("using the tensors of its member \"%.100s\"", member));
  for (size_t i = 0; i < dict->n; i += 2) {
    const PickleValue *call = tensor_call(dict->item[i + 1]);
    if (call && dict->item[i]->type == PICKLE_STR && !add_tensor(r, dict->item[i]->text, call)) return false;
  }
  return true;
}

// ---- the zip format ---------------------------------------------------------------------------------------------

static const ZipMember *find_description(const Zip *z) {
  static const char name[] = "/data.pkl";
  for (size_t i = 0; i < z->n; i++) {
    size_t length = strlen(z->members[i].name);
    if (length >= sizeof name - 1 && !strcmp(z->members[i].name + length - (sizeof name - 1), name))
      return &z->members[i];
  }
  return NULL;
}

static const ZipMember *find_member(const Zip *z, const ZipMember *description, const char *folder, const char *name) {
  int prefix = (int)(strlen(description->name) - strlen("data.pkl"));
  char *path = xasprintf("%.*s%s%s", prefix, description->name, folder, name);
  const ZipMember *m = zip_find(z, path);
  free(path);
  return m;
}

static bool read_members(TorchReader *r, const Zip *z, Pickle *p) {
  const ZipMember *description = find_description(z);
  if (!description) return unusable(r, "a zip archive without data.pkl was not written by torch.save");
  const ZipMember *order = find_member(z, description, "", "byteorder");
  if (order && (order->size != 6 || memcmp(order->data, "little", 6))) return unusable(r, big_endian);
  const unsigned char *at = description->data;
  if (!read_pickle(r, p, &at, at + description->size) || !list_storages(r, p)) return false;
  for (size_t i = 0; i < r->num_storages; i++) {
    Storage *s = &r->storages[i];
    const ZipMember *m = find_member(z, description, "data/", s->key);
    if (!m) return err_set(r->err, "%s: not a valid PyTorch file: storage %.50s is missing", r->path, s->key);
    if (!store_data(r, s, m->data, m->size)) return false;
  }
  return add_tensors(r, p->root);
}

static bool read_zip(TorchReader *r, Pickle *p) {
  Zip z;
  if (!zip_open(&z, r->c->bytes, r->c->size, r->path, r->err)) return false;
  bool ok = read_members(r, &z, p);
  if (!zip_verify(&z, r->path, r->err)) ok = false; // what else is wrong follows from it
  zip_close(&z);
  return ok;
}

// ---- the older format -------------------------------------------------------------------------------------------

// Two pickles, of the numbers 0x1950a86a20f9469cfc6c and 1001.
static const unsigned char legacy_magic[] = "\x80\2\x8a\12l\xfc\x9c"
                                            "F\xf9 j\xa8P\x19.\x80\2M\xe9\3.";
enum { LEGACY_MAGIC = sizeof legacy_magic - 1, NUMBER = 12 }; // NUMBER: the opcode of the first one, and its bytes

// {"protocol_version": 1001, "little_endian": True, "type_sizes": …}
static bool check_system(TorchReader *r, const PickleValue *v) {
  for (size_t i = 0; v->type == PICKLE_DICT && i < v->n; i += 2)
    if (v->item[i]->type == PICKLE_STR && !strcmp(v->item[i]->text, "little_endian"))
      return v->item[i + 1]->integer == 1 || unusable(r, big_endian);
  return unusable(r, "its byte order is not recorded");
}

// The storages follow the list of their keys, in that order: an element count, then the values.
static bool place_storages(TorchReader *r, const PickleValue *keys, const unsigned char *at, const unsigned char *end) {
  for (size_t i = 0; keys->type == PICKLE_LIST && i < keys->n; i++) {
    Storage *s = keys->item[i]->type == PICKLE_STR ? find_storage(r, keys->item[i]->text) : NULL;
    if (!s) return unusable(r, "it has a storage that no tensor uses");
    uint64_t count = 0;
    if (end - at < 8) return unusable(r, "it ends before its storages do; is it truncated?");
    for (int k = 0; k < 8; k++) count |= (uint64_t)at[k] << (8 * k);
    at += 8;
    size_t size = ckpt_type_size(s->type);
    if (count > (size_t)(end - at) / size) return unusable(r, "it ends before its storages do; is it truncated?");
    if (!store_data(r, s, at, (size_t)count * size)) return false;
    at += count * size;
  }
  for (size_t i = 0; i < r->num_storages; i++)
    if (!r->storages[i].data)
      return err_set(r->err, "%s: not a valid PyTorch file: storage %.50s is missing", r->path, r->storages[i].key);
  return at == end || unusable(r, "it continues after its storages");
}

static bool is_protocol_2(const Checkpoint *c) {
  return c->size >= LEGACY_MAGIC && !memcmp(c->bytes, legacy_magic, LEGACY_MAGIC);
}

// Of any protocol: 0 and 1 write the first number in digits, 4 and 5 have a frame of nine bytes before it.
static bool is_legacy(const Checkpoint *c) {
  static const char digits[] = "L119547037146038801333356L\n";
  enum { FRAME = 9, DIGITS = sizeof digits - 1 };
  if (is_protocol_2(c) || (c->size >= DIGITS && !memcmp(c->bytes, digits, DIGITS))) return true;
  return c->size >= 2 + FRAME + NUMBER && c->bytes[0] == 0x80 &&
         !memcmp(c->bytes + (c->bytes[2] == 0x95 ? 2 + FRAME : 2), legacy_magic + 2, NUMBER);
}

static bool read_legacy(TorchReader *r, Pickle *p) {
  const unsigned char *at = r->c->bytes, *end = r->c->bytes + r->c->size;
  if (!is_protocol_2(r->c)) return read_pickle(r, p, &at, end) && unusable(r, "its version is unknown");
  at += LEGACY_MAGIC;
  Pickle other;
  if (!read_pickle(r, &other, &at, end)) return false;
  bool ok = check_system(r, other.root);
  pickle_free(&other);
  if (!ok || !read_pickle(r, p, &at, end) || !list_storages(r, p) || !read_pickle(r, &other, &at, end)) return false;
  ok = place_storages(r, other.root, at, end);
  pickle_free(&other);
  return ok && add_tensors(r, p->root);
}

// ---- both formats ---- ------------------------------------------------------------------------------------------

bool ckpt_is_torch(const Checkpoint *c) { return (c->size >= 4 && !memcmp(c->bytes, "PK\3\4", 4)) || is_legacy(c); }

bool ckpt_parse_torch(Checkpoint *c, const char *path, Err *err) {
  TorchReader r = {.c = c, .path = path, .err = err};
  Pickle p = {0};
  bool ok = is_legacy(c) ? read_legacy(&r, &p) : read_zip(&r, &p);
  pickle_free(&p);
  free(r.storages);
  return ok;
}
