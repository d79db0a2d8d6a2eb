#include "data/survey/examination.h"
#include <stdlib.h>
#include <unistd.h>
#include "base/alloc.h"
#include "base/file.h"
#include "base/output.h"
#include "data/batches/objects.h"

void examination_take(Examination *e, const char *split, bool scored, const Dataset *d, const Dataset *train) {
  *e = (Examination){.split = split, .scored = scored};
  if (d->type != &objects_with_masks) return;
  defects_find(&e->defects, d, scored ? DEPTH_HEADERS : DEPTH_ANNOTATIONS, NULL, NULL);
  if (train) defects_find_shared(&e->defects, d, train);
  for (int i = 0; scored && i < d->num_images; i++) // reported here, not again when it is read
    if (e->defects.reason[d->image[i]]) atomic_store(&d->reported[i], 1);
}

void examination_compare_orientations(Examination *train, const Dataset *of_train, Examination *val,
                                      const Dataset *of_val) {
  enum { SAMPLE = 1000 }; // images
  if (of_train->type != &objects_with_masks) return;
  defects_find_orientations(&train->defects, of_train, SAMPLE);
  defects_find_turned(&train->defects, of_train, &val->defects);
  defects_find_turned(&val->defects, of_val, &train->defects);
}

void examination_free(Examination *e) { defects_free(&e->defects); }

void examination_print(const Examination *e, FILE *out) {
  for (int k = 0; k < DEFECTS; k++) {
    if (!e->defects.of_type[k].count) continue;
    char *line = defects_line(&e->defects, (Defect)k, e->scored);
    line_print(out, "%s: %s", e->split, line);
    free(line);
  }
}

bool examination_passes(const Examination *e, Err *err) {
  const Defects *f = &e->defects;
  int types = 0, first = -1;
  for (int k = DEFECTS - 1; k >= 0; k--)
    if (f->of_type[k].count) {
      types++;
      first = k;
    }
  if (first < 0) return true;
  char *line = defects_line(f, (Defect)first, e->scored), more[64] = "";
  if (types > 1) snprintf(more, sizeof more, "; %d types of defects in total", types);
  err_set(err, "%s: %s%s; correct the file, or leave out --strict", f->coco->path, line, more);
  free(line);
  return false;
}

// ---- the file -------------------------------------------------------------------------------------------------------

static void write_row(FILE *f, const Examination *e, int defect, int image, int64_t id, const char *reason) {
  const char *file = image >= 0 ? e->defects.coco->images[image].file_name : NULL;
  defect_row(f, e->split, defect_info[defect].key, defect_info[defect].of, id, file, reason);
}

static void write_rows(FILE *f, const Examination *e, int image, int64_t id, uint32_t defects) {
  for (int k = 0; defects; k++, defects >>= 1)
    if (defects & 1) write_row(f, e, k, image, id, k == DEFECT_FILE ? e->defects.reason[image] : NULL);
}

// Lists what the reader dropped, of which only the first example is known.
static void write_dropped(FILE *f, const Examination *e) {
  for (int k = 0; k < DEFECTS; k++) {
    const DefectCount *found = &e->defects.of_type[k];
    if (!found->count || found->image >= 0 || k == DEFECT_BROKEN) continue;
    char *reason = xasprintf("the first of %d", found->count);
    write_row(f, e, k, -1, found->id, reason);
    free(reason);
  }
}

static void write_all(FILE *f, const Examination *e) {
  const Coco *c = e->defects.coco;
  const uint32_t of_files = 1u << DEFECT_MISSING | 1u << DEFECT_FILE | 1u << DEFECT_SHARED | 1u << DEFECT_TURNED;
  for (int i = 0; i < c->num_broken; i++)
    write_row(f, e, DEFECT_BROKEN, coco_find_image(c, c->broken[i].image_id), c->broken[i].id,
              coco_faults[c->broken[i].fault]);
  write_dropped(f, e);
  for (int i = 0; i < c->num_images; i++) {
    const CocoImage *im = &c->images[i];
    if (!e->defects.of_image[i]) continue;
    write_rows(f, e, i, im->id, e->defects.of_image[i] & of_files);
    for (int a = im->first_ann; a < im->first_ann + im->anns; a++)
      write_rows(f, e, i, c->anns[a].id, e->defects.of_ann[a]);
  }
}

bool examination_any(const Examination *e, int n) {
  bool any = false;
  for (int i = 0; i < n; i++) any |= defects_any(&e[i].defects);
  return any;
}

bool examination_write(const Examination *e, int n, const char *path, Err *err) {
  AtomicFile a;
  if (!file_begin(&a, path, err)) return false;
  fputs(defect_rows_head, a.f);
  for (int i = 0; i < n; i++)
    if (e[i].defects.coco) write_all(a.f, &e[i]);
  return file_commit(&a, err);
}

void examination_list(const Examination *e, int n, const char *path) {
  Err err;
  if (!examination_any(e, n))
    unlink(path); // left by an earlier run
  else if (examination_write(e, n, path, &err))
    line_print(stderr, "defects in the data are listed in %s", path);
  else
    line_print(stderr, "warning: %s", err.msg);
}
