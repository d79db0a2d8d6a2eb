// Reads a COCO data set from its annotation file: sections in any order, then indexed by id and grouped by image.
#include <limits.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include "base/alloc.h"
#include "base/digest.h"
#include "base/parallel.h"
#include "data/coco/coco.h"
#include "data/coco/coco_read.h"

// The part of an address behind its last slash: LVIS names images by their address alone.
static char *last_part(char *address) {
  if (!address) return NULL;
  const char *slash = strrchr(address, '/');
  char *name = slash && slash[1] ? xstrdup(slash + 1) : NULL;
  free(address);
  return name;
}

// The id of an image or category; `key`: its key if these are members of an object, used if it has no id of its own.
typedef struct GivenId {
  int64_t id;
  bool is_text, is_given;
} GivenId;

static GivenId id_of_key(TextIds *ids, const char *key) {
  GivenId given = {.is_given = key};
  if (key) given.id = coco_text_id(ids, key, &given.is_text);
  return given;
}

static void read_given_id(Json *j, TextIds *ids, GivenId *to) {
  to->id = coco_read_id(j, ids, &to->is_text);
  to->is_given = true;
}

static char *text_of(const TextIds *ids, const GivenId *given) {
  return given->is_text ? xstrdup(ids->texts.text[given->id]) : NULL;
}

// Of no use, and costly to look for under other spellings.
static void refuse_long(Json *j, const char *file_name) {
  const size_t length = file_name ? strlen(file_name) : 0;
  if (length >= PATH_MAX) json_fail(j, "a file_name of %zu bytes; a path has less than %d", length, PATH_MAX);
}

static void read_image(CocoReader *r, const char *key_of) {
  Json *j = &r->json;
  CocoImage image = {0};
  GivenId id = id_of_key(&r->image_ids, key_of);
  char *address = NULL;
  if (json_begin_object(j))
    for (const char *key; (key = json_key(j));) {
      if (strcmp(key, "id") == 0) {
        read_given_id(j, &r->image_ids, &id);
      } else if (strcmp(key, "file_name") == 0) {
        free(image.file_name); // of an earlier, repeated key
        image.file_name = coco_read_string(j);
      } else if (strcmp(key, "coco_url") == 0) {
        free(address);
        address = coco_read_string(j);
      } else if (strcmp(key, "height") == 0 && json_peek(j) == JSON_NUMBER) { // else the file tells
        image.h = coco_read_extent(j);
      } else if (strcmp(key, "width") == 0 && json_peek(j) == JSON_NUMBER) {
        image.w = coco_read_extent(j);
      } else {
        json_skip(j);
      }
    }
  if (!id.is_given) json_fail(j, "an image without an id");
  char *tail = last_part(address);
  if (image.file_name)
    free(tail);
  else
    image.file_name = tail;
  refuse_long(j, image.file_name);
  image.id = id.id;
  image.text_id = text_of(&r->image_ids, &id);
  Coco *c = &r->coco;
  array_reserve((void **)&c->images, &r->images_cap, (size_t)c->num_images + 1, sizeof *c->images);
  c->images[c->num_images++] = image;
}

static void read_category(CocoReader *r, const char *key_of) {
  Json *j = &r->json;
  CocoCategory category = {0};
  GivenId id = id_of_key(&r->category_ids, key_of);
  int above = -1;
  if (json_begin_object(j))
    for (const char *key; (key = json_key(j));) {
      if (strcmp(key, "id") == 0) {
        read_given_id(j, &r->category_ids, &id);
      } else if (strcmp(key, "name") == 0) {
        free(category.name); // of an earlier, repeated key
        category.name = json_peek(j) == JSON_NUMBER ? xasprintf("%.15g", json_number(j)) : coco_read_string(j);
      } else if (strcmp(key, "supercategory") == 0 && json_peek(j) == JSON_STRING) {
        above = text_table_add(&r->supercategories, json_string(j, NULL));
      } else {
        json_skip(j);
      }
    }
  enum { CATEGORIES = 100000 }; // scores take memory for each
  if (!id.is_given) json_fail(j, "a category without an id");
  if (r->coco.num_categories == CATEGORIES) json_fail(j, "more than %d categories", CATEGORIES);
  category.id = id.id;
  category.text_id = text_of(&r->category_ids, &id);
  if (!category.name || !category.name[strspn(category.name, " \t\r\n\v\f")]) {
    free(category.name);
    category.name = category.text_id ? xstrdup(category.text_id) : xasprintf("%lld", (long long)category.id);
    category.unnamed = !category.text_id;
  }
  Coco *c = &r->coco;
  array_reserve((void **)&c->categories, &r->categories_cap, (size_t)c->num_categories + 1, sizeof *c->categories);
  array_reserve((void **)&r->supercategory, &r->supercategory_cap, (size_t)c->num_categories + 1,
                sizeof *r->supercategory);
  r->supercategory[c->num_categories] = above;
  c->categories[c->num_categories++] = category;
}

// Marks categories that are the supercategory of another.
static void mark_parents(CocoReader *r) {
  Coco *c = &r->coco;
  int *times = xcalloc((size_t)r->supercategories.n + 1, sizeof *times);
  for (int i = 0; i < c->num_categories; i++)
    if (r->supercategory[i] >= 0) times[r->supercategory[i]]++;
  for (int i = 0; i < c->num_categories; i++) {
    const int own = text_table_find(&r->supercategories, c->categories[i].name);
    c->categories[i].is_parent = own >= 0 && times[own] > (r->supercategory[i] == own);
  }
  free(times);
}

// ---- ids that are texts ---------------------------------------------------------------------------------------------

// Gives the texts of one list numbers, in its order, above all ids that are numbers; then texts that only annotations
// have. Items begin with their id, followed by their text_id.
static void number_texts(TextIds *ids, void *items, int n, size_t size) {
  typedef struct TextItem {
    int64_t id;
    char *text_id;
  } TextItem;
  int64_t next = 1;
  const int texts = ids->texts.n;
  if (texts == 0) return;
  ids->id = xcalloc((size_t)texts, sizeof *ids->id);
  for (int i = 0; i < n; i++) {
    const TextItem *item = (const TextItem *)((char *)items + (size_t)i * size);
    if (!item->text_id && item->id >= next) next = item->id < INT64_MAX - INT_MAX ? item->id + 1 : next;
  }
  for (int i = 0; i < n; i++) {
    TextItem *item = (TextItem *)((char *)items + (size_t)i * size);
    if (!item->text_id) continue;
    int64_t *id = &ids->id[item->id];
    if (!*id) *id = next++;
    item->id = *id;
  }
  for (int i = 0; i < texts; i++)
    if (!ids->id[i]) ids->id[i] = next++;
}

static void resolve_texts(CocoReader *r) {
  Coco *c = &r->coco;
  number_texts(&r->image_ids, c->images, c->num_images, sizeof *c->images);
  number_texts(&r->category_ids, c->categories, c->num_categories, sizeof *c->categories);
  for (int i = 0; i < c->num_anns; i++) {
    CocoAnn *a = &c->anns[i];
    if (a->text_image) a->image_id = r->image_ids.id[a->image_id];
    if (a->text_category) a->category_id = r->category_ids.id[a->category_id];
  }
}

// ---- index ----------------------------------------------------------------------------------------------------------

static int compare_id(const void *a, const void *b) { // of structs whose first member is their id
  int64_t x = *(const int64_t *)a, y = *(const int64_t *)b;
  return (x > y) - (x < y);
}

typedef struct IdPosition {
  int64_t id;
  int at;
} IdPosition;

static int compare_position(const void *a, const void *b) {
  const IdPosition *p = a, *q = b;
  int by_id = compare_id(p, q);
  return by_id ? by_id : compare_int(&p->at, &q->at);
}

// Sorts items, each beginning with its id, and keeps the last of those with the same id, as in pycocotools' index.
// Returns how many are left; *repeated is the lowest id that was dropped.
static int sort_by_id(void *items, int n, size_t size, void (*drop)(void *item), int64_t *repeated) {
  if (n == 0) return 0;
  IdPosition *positions = xcalloc((size_t)n, sizeof *positions);
  char *from = items, *sorted = xcalloc((size_t)n, size);
  for (int i = 0; i < n; i++) {
    positions[i].at = i;
    memcpy(&positions[i].id, from + (size_t)i * size, sizeof positions[i].id);
  }
  qsort(positions, (size_t)n, sizeof *positions, compare_position);
  int kept = 0;
  for (int i = 0; i < n; i++) {
    char *item = from + (size_t)positions[i].at * size;
    if (i + 1 < n && positions[i + 1].id == positions[i].id) {
      if (kept == i) *repeated = positions[i].id;
      drop(item);
    } else {
      memcpy(sorted + (size_t)kept++ * size, item, size);
    }
  }
  memcpy(items, sorted, (size_t)kept * size);
  free(sorted);
  free(positions);
  return kept;
}

static void drop_image(void *image) {
  free(((CocoImage *)image)->file_name);
  free(((CocoImage *)image)->text_id);
}

static void drop_category(void *category) {
  free(((CocoCategory *)category)->name);
  free(((CocoCategory *)category)->text_id);
}

// Marks annotations whose id is repeated later in the file. Annotation i in file order becomes grouped_at[i] in grouped
// order; -1: it is dropped.
static void mark_replaced(Coco *c, const int *grouped_at) {
  int ascending = 1;
  while (ascending < c->num_anns && c->anns[ascending - 1].id < c->anns[ascending].id) ascending++;
  if (ascending >= c->num_anns) return; // ids ascend, as in most files, so none is repeated
  IdPosition *by_id = xcalloc((size_t)c->num_anns, sizeof *by_id);
  for (int i = 0; i < c->num_anns; i++) by_id[i] = (IdPosition){c->anns[i].id, i};
  qsort(by_id, (size_t)c->num_anns, sizeof *by_id, compare_position);
  for (int i = c->num_anns - 1, last = i; i >= 0; i--) {
    if (by_id[i].id != by_id[last].id) last = i;
    c->anns[by_id[i].at].replaced = i < last;
    c->anns[by_id[i].at].by = i < last ? grouped_at[by_id[last].at] : 0;
  }
  free(by_id);
}

// A counting sort by image, stable, so that file order holds within an image.
static void group_annotations(Coco *c) {
  int *image_of = xcalloc((size_t)c->num_anns, sizeof *image_of);
  for (int i = 0; i < c->num_anns; i++) {
    image_of[i] = coco_find_image(c, c->anns[i].image_id);
    if (image_of[i] >= 0) c->images[image_of[i]].anns++;
  }
  int first = 0;
  for (int i = 0; i < c->num_images; i++) {
    c->images[i].first_ann = first;
    first += c->images[i].anns;
    c->images[i].anns = 0;
  }
  int *grouped_at = image_of; // reuses its memory
  for (int i = 0; i < c->num_anns; i++) {
    CocoImage *image = image_of[i] < 0 ? NULL : &c->images[image_of[i]];
    grouped_at[i] = image ? image->first_ann + image->anns++ : -1;
  }
  mark_replaced(c, grouped_at);
  CocoAnn *grouped = xcalloc((size_t)first, sizeof *grouped);
  for (int i = 0; i < c->num_anns; i++) {
    CocoAnn *a = &c->anns[i];
    if (grouped_at[i] < 0) {
      if (c->unknown_image++ == 0) c->unknown_image_ann = a->id;
      continue;
    }
    a->category = a->no_category ? -1 : coco_find_category(c, a->category_id);
    c->unknown_category += a->category < 0;
    grouped[grouped_at[i]] = *a;
  }
  free(grouped_at);
  free(c->anns);
  c->anns = grouped;
  c->num_anns = first;
}

// Drops categories without objects that are the supercategory of another.
static void drop_parents(Coco *c) {
  int *objects = xcalloc((size_t)c->num_categories, sizeof *objects), kept = 0;
  for (int i = 0; i < c->num_anns; i++)
    if (c->anns[i].category >= 0) objects[c->anns[i].category]++;
  for (int i = 0; i < c->num_categories; i++) {
    const bool drops = c->categories[i].is_parent && objects[i] == 0;
    if (drops)
      drop_category(&c->categories[i]);
    else
      c->categories[kept] = c->categories[i];
    objects[i] = drops ? -1 : kept++; // its new index
  }
  for (int i = 0; i < c->num_anns; i++)
    if (c->anns[i].category >= 0) c->anns[i].category = objects[c->anns[i].category];
  c->num_categories = kept;
  free(objects);
}

// ---- what is absent -------------------------------------------------------------------------------------------------

static bool is_complete(const CocoAnn *a) { return a->has_bbox && !isnan(a->area); }

// If the file gives no size for the image, masks are used at their own size.
static void complete(const Coco *c, const CocoImage *im, CocoAnn *a) {
  const bool sized = im->h > 0 && im->w > 0, polygons = a->type == SEG_POLYGONS;
  const int h = sized ? im->h : polygons ? a->extent[3] + 1 : a->rle_h;
  const int w = sized ? im->w : polygons ? a->extent[2] + 1 : a->rle_w;
  Rle mask;
  const bool has_mask = coco_ann_rle(c, a, h, w, &mask);
  if (has_mask && !a->has_bbox) rle_bbox(&mask, a->bbox);
  if (isnan(a->area)) a->area = has_mask ? (double)rle_area(&mask) : a->bbox[2] * a->bbox[3];
  rle_free(&mask);
}

static void complete_image(void *of, int i, int thread) {
  (void)thread;
  Coco *c = of;
  const CocoImage *im = &c->images[i];
  for (CocoAnn *a = c->anns + im->first_ann; a < c->anns + im->first_ann + im->anns; a++)
    if (!is_complete(a)) complete(c, im, a);
}

// Gives annotations without a box or an area those of their masks.
static void complete_annotations(Coco *c) {
  int first = 0;
  while (first < c->num_anns && is_complete(&c->anns[first])) first++;
  if (first < c->num_anns) parallel_for(c->num_images, parallel_threads(c->num_images), complete_image, c);
}

// Ids are not included, because they do not affect training.
static void digest_image(void *of, int i, int thread) {
  (void)thread;
  const Coco *c = of;
  CocoImage *image = &c->images[i];
  for (int k = image->first_ann; k < image->first_ann + image->anns; k++) {
    const CocoAnn *a = &c->anns[k];
    image->areas = digest_bytes(image->areas, &a->area, sizeof a->area);
    image->drawn = digest_word(image->drawn + 1, a->drawn);
  }
}

static void digest_image_labels(void *of, int i, int thread) {
  (void)thread;
  const Coco *c = of;
  CocoImage *image = &c->images[i];
  uint64_t digest = 0;
  for (const CocoAnn *a = c->anns + image->first_ann; a < c->anns + image->first_ann + image->anns; a++)
    digest = digest_text(digest_word(digest, (uint64_t)a->crowd << 1 | (a->category < 0)),
                         a->category < 0 ? NULL : c->categories[a->category].name);
  image->labelled = digest;
}

void coco_digest_labels(Coco *c) {
  parallel_for(c->num_images, parallel_threads(c->num_images), digest_image_labels, c);
}

// ---- the file -------------------------------------------------------------------------------------------------------

// A list of the file that training needs, and how one of its elements is read.
typedef struct Section {
  const char *name;
  void (*read)(CocoReader *r, const char *key);
} Section;
enum { IMAGES, CATEGORIES, SECTIONS = 3 };
static const Section sections[SECTIONS] = {
    [IMAGES] = {"images", read_image}, [CATEGORIES] = {"categories", read_category}, {"annotations", coco_read_object}};

// Reads a list, or an object whose keys are ids.
static void read_section(CocoReader *r, const Section *s) {
  Json *j = &r->json;
  if (json_peek(j) == JSON_OBJECT) {
    json_begin_object(j);
    for (const char *key; (key = json_key(j));) {
      char *own = xstrdup(key); // its bytes are those of the last string read
      s->read(r, own);
      free(own);
    }
  } else if (json_begin_array(j)) {
    while (json_next(j)) s->read(r, NULL);
  }
}

static bool read_sections(CocoReader *r, bool seen[SECTIONS]) {
  Json *j = &r->json;
  if (json_begin_object(j))
    for (const char *key; (key = json_key(j));) {
      int s = 0;
      while (s < SECTIONS && strcmp(key, sections[s].name) != 0) s++;
      if (s == SECTIONS) {
        json_skip(j);
      } else if (seen[s]) { // Python would silently forget the first
        json_fail(j, "a second list \"%s\"; merge the two", sections[s].name);
      } else {
        seen[s] = true;
        read_section(r, &sections[s]);
      }
    }
  return json_done(j);
}

// A few broken annotations are left out; if most are, something else is wrong.
static bool check_broken(const Coco *c, Err *err) {
  if (2 * c->num_broken <= c->num_anns + c->num_broken) return true;
  return err_set(err, "%s: %d of %d annotations cannot be used; the first is annotation %lld: %s", c->path,
                 c->num_broken, c->num_anns + c->num_broken, (long long)c->broken[0].id,
                 coco_faults[c->broken[0].fault]);
}

bool coco_load(Coco *c, const char *path, Err *err) {
  *c = (Coco){0};
  CocoReader r;
  if (!coco_read_open(&r, path, err)) return false;
  r.lenient = r.json.takes_nonfinite = true;
  bool seen[SECTIONS] = {false};
  bool ok = read_sections(&r, seen) || err_set(err, "%s", r.json.err.msg);
  if (ok && !seen[IMAGES]) ok = err_set(err, "%s: no list \"images\"; is this a COCO annotation file?", path);
  ok = ok && check_broken(&r.coco, err);
  if (ok) resolve_texts(&r);
  if (ok) mark_parents(&r);
  *c = r.coco;
  coco_read_close(&r);
  if (!ok) {
    coco_free(c);
    return false;
  }
  int images = c->num_images, categories = c->num_categories;
  c->num_images = sort_by_id(c->images, images, sizeof *c->images, drop_image, &c->duplicate_image);
  c->num_categories =
      sort_by_id(c->categories, categories, sizeof *c->categories, drop_category, &c->duplicate_category);
  c->duplicate_images = images - c->num_images;
  c->duplicate_categories = categories - c->num_categories;
  c->no_categories = !seen[CATEGORIES];
  group_annotations(c);
  drop_parents(c);
  parallel_for(c->num_images, parallel_threads(c->num_images), digest_image, c);
  coco_digest_labels(c);
  complete_annotations(c);
  return true;
}
