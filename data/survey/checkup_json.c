#include "data/survey/checkup_json.h"
#include <math.h>
#include <stdlib.h>
#include "base/alloc.h"
#include "base/record.h"
#include "base/text.h"

// A growing text: a JSON array under construction.
typedef struct List {
  char *text;
  size_t size;
  FILE *f;
  bool any;
} List;

static void list_begin(List *l) {
  l->f = text_open(&l->text, &l->size);
  l->any = false;
  fputc('[', l->f);
}

static void list_add(List *l, const char *json) {
  fprintf(l->f, "%s%s", l->any ? "," : "", json);
  l->any = true;
}

// Closes the array and makes it a member of r.
static void list_end(List *l, Record *r, const char *key) {
  fputc(']', l->f);
  text_close(l->f);
  record_raw(r, key, l->text);
  free(l->text);
}

static void record_size(Record *r, const char *key, Size s) {
  char text[64];
  snprintf(text, sizeof text, "[%d,%d]", s.h, s.w);
  record_raw(r, key, text);
}

static void record_categories(Record *out, const Split *s) {
  List l;
  list_begin(&l);
  Record r = {0};
  for (int i = 0; i < s->data.coco.num_categories; i++) {
    const CategorySurvey *c = &s->survey.category[i];
    record_begin(&r);
    record_int(&r, "id", s->data.coco.categories[i].id);
    record_str(&r, "name", s->data.coco.categories[i].name);
    record_int(&r, "objects", c->objects);
    record_int(&r, "images", c->images);
    record_int(&r, "tiny", c->tiny);
    record_num(&r, "pixels", (double)c->size);
    list_add(&l, record_end(&r));
  }
  record_free(&r);
  list_end(&l, out, "categories");
}

static void record_wrong(Record *out, const Split *s, bool scored) {
  List l;
  list_begin(&l);
  Record r = {0};
  for (int k = 0; k < DEFECTS; k++) {
    const DefectCount *f = &s->defects.of_type[k];
    if (!f->count) continue;
    record_begin(&r);
    record_str(&r, "defect", defect_info[k].key);
    record_int(&r, "count", f->count);
    record_str(&r, "what", defect_info[k].what);
    record_str(&r, "treatment", defect_treatment((Defect)k, scored));
    record_str(&r, "of", defect_info[k].of);
    record_int(&r, "first_id", f->id);
    record_str(&r, "first_file", f->image >= 0 ? s->data.coco.images[f->image].file_name : NULL);
    list_add(&l, record_end(&r));
  }
  record_free(&r);
  list_end(&l, out, "wrong");
}

static void record_split(Record *out, const char *key, const Split *s, bool scored) {
  const Survey *v = &s->survey;
  Record r = {0};
  record_begin(&r);
  record_str(&r, "split", s->name);
  record_str(&r, "stop", *s->stop.msg ? s->stop.msg : NULL);
  if (s->open) {
    record_int(&r, "images", s->data.num_images);
    record_int(&r, "without_objects", s->data.without_objects);
    record_int(&r, "objects", v->objects);
    record_int(&r, "crowds", s->data.crowds);
    record_int(&r, "tiny", v->tiny);
    record_int(&r, "most_objects", s->data.max_objects);
    record_int(&r, "crowded_images", v->crowded);
    record_int(&r, "place_bytes", v->slot_bytes);
    record_size(&r, "median_image", v->image50);
    record_size(&r, "largest_image", v->image100);
    record_num(&r, "pixels_10", (double)v->size10);
    record_num(&r, "pixels_50", (double)v->size50);
    record_num(&r, "pixels_90", (double)v->size90);
    ranges_record(&r, &s->ranges);
    record_num(&r, "decode_ms", s->defects.decode_ms > 0 ? s->defects.decode_ms : NAN);
    record_categories(&r, s);
    record_wrong(&r, s, scored);
  }
  record_raw(out, key, record_end(&r));
  record_free(&r);
}

char *checkup_json(const Checkup *c, const CheckupOptions *o) {
  Record r = {0};
  record_begin(&r);
  record_str(&r, "data", o->data);
  record_int(&r, "size", o->size);
  record_int(&r, "max_size", o->max_size);
  record_bool(&r, "sound", c->sound);
  record_split(&r, "train", &c->train, false);
  if (c->val.name) record_split(&r, "val", &c->val, true);
  record_strings(&r, "hurts", (const char *const *)c->advice.concerns, c->advice.num_concerns);
  record_str(&r, "flags", c->suggestion.flags);
  record_strings(&r, "reasons", (const char *const *)c->suggestion.reason, c->suggestion.reasons);
  char *json = xstrdup(record_end(&r));
  record_free(&r);
  return json;
}
