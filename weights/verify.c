// Compares weights files with their digests, and tells which files must have them.
#include "weights/verify.h"
#include <stdlib.h>
#include <string.h>
#include "base/alloc.h"
#include "base/digest.h"
#include "base/parallel.h"
#include "weights/formats.h"

const char *const verify_keys[] = {"model",      "categories", "step",     "loss_scale", "adam", "run",
                                   "trained_on", "held_out",   digest_key, digests_key,  NULL};

uint64_t verify_digest(const unsigned char *file, size_t at, size_t end) {
  const size_t behind = at + DIGEST_DIGITS;
  return digest_join((uint64_t[]){digest_all(file, at), digest_all(file + behind, end - behind)}, 2);
}

// ---- the header -----------------------------------------------------------------------------------------------------

static bool damaged(const char *path, const char *what, Err *err) {
  return err_set(err, "%s: damaged, or changed by another program: %s; use a copy of it or an earlier checkpoint", path,
                 what);
}

static bool begins_with(const char *text, const char *with) { return !strncmp(text, with, strlen(with)); }

static bool is_ours(const CkptMeta *m) {
  if (!strcmp(m->key, "format")) return begins_with(m->value, "maskrcnn.c"); // others have such a key, too
  for (const char *const *key = verify_keys; *key; key++)
    if (!strcmp(m->key, *key)) return true;
  return begins_with(m->key, "config.");
}

// A key by which a file is ours; NULL: it is another program's.
static const char *own_key(const Checkpoint *c) {
  for (size_t i = 0; i < c->num_meta; i++)
    if (is_ours(&c->meta[i])) return c->meta[i].key;
  return NULL;
}

// `value` points into c->header, where a string without escapes stands as in the file.
static bool is_verify_digest(const Checkpoint *c, const char *value) {
  const size_t at = CKPT_PREFIX + (size_t)(value - c->header);
  char digits[DIGEST_DIGITS];
  if (strlen(value) != DIGEST_DIGITS) return false;
  digest_write(verify_digest(c->bytes, at, c->data_start), digits);
  return !memcmp(digits, c->bytes + at, DIGEST_DIGITS); // the digits themselves: an escaped or a capital one is damage
}

static bool set_digests(Checkpoint *c, const char *text) {
  if (strlen(text) != c->num_tensors * DIGEST_DIGITS) return false;
  for (size_t i = 0; i < c->num_tensors; i++)
    if (!digest_read(text + i * DIGEST_DIGITS, &c->tensors[i].digest)) return false;
  return true;
}

// They are the format's, not the caller's.
static void hide_digests(Checkpoint *c) {
  size_t kept = 0;
  for (size_t i = 0; i < c->num_meta; i++)
    if (strcmp(c->meta[i].key, digest_key) && strcmp(c->meta[i].key, digests_key)) c->meta[kept++] = c->meta[i];
  c->num_meta = kept;
}

bool verify_header(Checkpoint *c, const char *path, Err *err) {
  const char *own = own_key(c), *format = ckpt_find_meta(c, "format");
  const char *digest = ckpt_find_meta(c, digest_key), *digests = ckpt_find_meta(c, digests_key);
  char what[256];
  if (!own) return true;
  if (!digest && !digests && format && !strcmp(format, ckpt_format_1)) {
    c->note = "it has no digests, so damage would go unnoticed; checkpoints saved from now on have them";
    return true;
  }
  snprintf(what, sizeof what, "its metadata has \"%.60s\", as files of maskrcnn.c do, but no digests", own);
  if (!digest || !digests) return damaged(path, what, err);
  if (!is_verify_digest(c, digest)) return damaged(path, "the header does not match its digest", err);
  if (!set_digests(c, digests)) return damaged(path, "it does not have one digest per tensor", err);
  if (format && begins_with(format, "maskrcnn.c") && strcmp(format, ckpt_format) && strcmp(format, ckpt_format_1))
    return err_set(err, "%s: its format is \"%.60s\", which this version cannot read: use the version that wrote it",
                   path, format);
  hide_digests(c);
  c->has_digests = true;
  return true;
}

// ---- the tensors ----------------------------------------------------------------------------------------------------

typedef struct Block {
  size_t tensor, block;
} Block;

typedef struct Blocks {
  const Checkpoint *c;
  Block *of; // every block of every tensor, in their order
  uint64_t *digest;
  size_t n;
} Blocks;

static void digest_one(void *context, int i, int thread) {
  (void)thread;
  const Blocks *b = context;
  const CkptTensor *t = &b->c->tensors[b->of[i].tensor];
  b->digest[i] = digest_block(t->data, t->bytes, b->of[i].block);
}

static void list_blocks(Blocks *b) {
  const Checkpoint *c = b->c;
  size_t n = 0;
  for (size_t i = 0; i < c->num_tensors; i++) n += digest_blocks(c->tensors[i].bytes);
  b->of = xcalloc(n + 1, sizeof *b->of);
  b->digest = xcalloc(n + 1, sizeof *b->digest);
  for (size_t i = 0; i < c->num_tensors; i++)
    for (size_t k = 0; k < digest_blocks(c->tensors[i].bytes); k++) b->of[b->n++] = (Block){i, k};
}

static bool report(const Checkpoint *c, size_t first, size_t wrong, const char *path, Err *err) {
  char what[256];
  snprintf(what, sizeof what, "the values of tensor \"%.100s\"", c->tensors[first].name);
  if (wrong > 1) snprintf(what + strlen(what), sizeof what - strlen(what), " and %zu more", wrong - 1);
  strcat(what, " do not match their digests");
  return damaged(path, what, err);
}

bool verify_tensors(const Checkpoint *c, const char *path, Err *err) {
  enum { BYTES_A_THREAD = 4 << 20 }; // below, starting a thread takes longer than it saves
  if (!c->has_digests) return true;
  Blocks b = {.c = c};
  size_t wrong = 0, first = 0, at = 0;
  list_blocks(&b);
  CHECK(b.n <= INT32_MAX); // 2 PiB
  const size_t turns = MIN(b.n, 1 + c->size / BYTES_A_THREAD);
  parallel_for((int)b.n, turns > 1 ? parallel_threads((int)turns) : 1, digest_one, &b);
  for (size_t i = 0; i < c->num_tensors; i++) {
    const size_t n = digest_blocks(c->tensors[i].bytes);
    if (digest_join(b.digest + at, n) != c->tensors[i].digest && wrong++ == 0) first = i;
    at += n;
  }
  free(b.of);
  free(b.digest);
  return wrong == 0 || report(c, first, wrong, path, err);
}
