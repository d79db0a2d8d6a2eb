// Catches parameters that are never updated, or updated twice in a step.
#include "nn/params.h"
#include "nn/update_parts.h"
#include "test/harness/child.h"
#include "test/harness/op.h"

static void open_params(Params *p, Device **dev, DType shadow) {
  CHECK(*dev = device_open("cpu", NULL));
  params_init(p, *dev, shadow);
}

static void allocate(Params *p) {
  Err err;
  CHECK(params_allocate(p, &err));
}

static void close_params(Params *p, Device *dev) {
  params_free(p);
  device_close(dev);
}

static NormFold *fold_of(Params *p, Param *filter) {
  Param *norm[4];
  char name[64];
  for (int i = 0; i < 4; i++) {
    snprintf(name, sizeof name, "%s.norm%d", filter->name, i);
    norm[i] = param_buffer(p, name, filter->master.n, INIT_ONE);
  }
  return param_fold(p, filter, norm[0], norm[1], norm[2], norm[3], 0);
}

// The parts of a parameter are contiguous, as it is in the flat buffers.
static int expect_parts(const Params *p, int at, const Param *q, const Tensor *shadow, const void *scale) {
  const size_t first = (size_t)((float *)q->master.data - (float *)p->master), n = tensor_elements(&q->master);
  for (size_t done = 0; done < n; at++) {
    const UpdatePart *u = &p->part[at];
    EXPECT(at < p->parts && u->first == first + done && u->n > 0 && u->n <= UPDATE_PART && u->n % 8 == 0);
    EXPECT(u->role == q->role && u->scale == scale);
    EXPECT(u->shadow == (shadow ? (char *)shadow->data + done * dtype_size(shadow->dtype) : NULL));
    if (scale) EXPECT((size_t)u->at == done && (size_t)u->row == n / (size_t)q->master.n);
    if (u->n <= 0) break;
    done += (size_t)u->n;
    EXPECT(done <= n);
  }
  return at;
}

TEST(update_parts_cover_what_is_trained) {
  const DType types[] = {F32, BF16};
  for (int t = 0; t < COUNT(types); t++) {
    Params p;
    Device *dev;
    open_params(&p, &dev, types[t]);
    Param *frozen = param_filter(&p, "frozen", 4, 3, 3, 5, false, false, INIT_ONE);
    Param *folded = param_filter(&p, "folded", 70, 3, 3, 11, false, true, INIT_ONE); // 70 rows of 144
    Param *bias = param_vector(&p, "bias", PARAM_BIAS, 70, true, INIT_ZERO, 1);
    Param *plain = param_filter(&p, "plain", 5, 1, 1, 4100, false, true, INIT_ONE);
    Param *both = param_filter(&p, "both", 3, 1, 1, 7, false, true, INIT_ONE); // its fold is inference's
    NormFold *fold = fold_of(&p, folded);
    fold_of(&p, both);
    frozen->plain = plain->plain = both->plain = true;
    folded->last_use = 3;
    allocate(&p);
    int at = expect_parts(&p, 0, bias, NULL, NULL);
    at = expect_parts(&p, at, plain, t ? &plain->shadow : NULL, NULL); // of one type: convolutions read the master
    at = expect_parts(&p, at, both, t ? &both->shadow : NULL, NULL);
    at = expect_parts(&p, at, folded, &folded->folded, fold->scale);
    EXPECT_INT(p.parts, at);
    EXPECT_INT(at, 1 + 6 + 1 + 3); // 5 · 4104 elements are five whole parts and one more, 70 · 144 two and one more
    close_params(&p, dev);
  }
}

// What a plan of memory says is what is taken, the list of parts included.
static size_t taken;
static void *(*own_alloc)(Device *dev, size_t bytes);
static void *counted_alloc(Device *dev, size_t bytes) {
  taken += bytes;
  return own_alloc(dev, bytes);
}
TEST(update_parts_are_planned) {
  Params p;
  Device *dev;
  open_params(&p, &dev, BF16);
  const Memory *own = dev->memory;
  Memory memory = *own;
  own_alloc = own->alloc;
  memory.alloc = counted_alloc;
  taken = 0;
  Param *filter = param_filter(&p, "filter", 70, 3, 3, 11, false, true, INIT_ONE);
  filter->plain = true;
  fold_of(&p, filter);
  p.adam = true;
  params_lay_out(&p);
  dev->memory = &memory;
  allocate(&p);
  dev->memory = own;
  EXPECT_INT(p.parts, 3);
  EXPECT_INT(taken, p.bytes);
  close_params(&p, dev);
}

// More elements than a part can count are refused, not left as they are.
static void lay_out_too_much(void *context) {
  Params p;
  Device *dev;
  (void)context;
  open_params(&p, &dev, F32);
  param_filter(&p, "huge", 1 << 16, 1, 1, 1 << 15, false, true, INIT_ONE);
  params_lay_out(&p);
}
TEST(update_parts_refuse_what_they_cannot_count) {
  const char *said;
  EXPECT(run_in_child(lay_out_too_much, NULL, &said) != 0);
  EXPECT(strstr(said, "update_parts.c"));
}

TEST(update_parts_of_nothing) {
  Params p;
  Device *dev;
  open_params(&p, &dev, F32);
  param_filter(&p, "frozen", 4, 3, 3, 5, false, false, INIT_ONE);
  allocate(&p);
  EXPECT_INT(p.parts, 0);
  close_params(&p, dev);
}
