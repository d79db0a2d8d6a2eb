#include "data/coco/categories_match.h"
#include <ctype.h>
#include <stdlib.h>
#include <string.h>
#include "base/alloc.h"
#include "base/digest.h"
#include "base/text.h"
#include "data/coco/lookalike.h"

// ---- names ----------------------------------------------------------------------------------------------------------

enum { NAME_BYTES = 255, SHOWN = 4 }; // longest name that weights store; pairs that a message lists

// Digests of a name, so that lists of ten thousand categories are compared quickly.
typedef struct CategoryName {
  uint64_t exact, plain; // plain: without spaces, in lower case
  bool named;
} CategoryName;

static uint64_t digest_plain(const char *name) {
  char text[NAME_BYTES];
  size_t n = 0;
  for (int i = 0; i < NAME_BYTES && name[i]; i++)
    if (!isspace((unsigned char)name[i])) text[n++] = (char)tolower((unsigned char)name[i]);
  return digest_bytes(0, text, n);
}

static bool has_name(const CocoCategory *c) {
  return !c->unnamed && c->name && c->name[strspn(c->name, " \t\r\n\v\f")];
}

static bool all_numbers(const CategoryList *l, const char *before) {
  for (int i = 0; i < l->n; i++) {
    char number[48];
    snprintf(number, sizeof number, "%s%lld", before, (long long)l->item[i].id);
    if (!l->item[i].name || strcmp(l->item[i].name, number)) return false;
  }
  return l->n > 0;
}

// Weights store a number for a category without a name: "7", or "class 7" in those of torchvision.
static bool weights_without_names(const CategoryList *l) {
  return l->of_weights && (all_numbers(l, "") || all_numbers(l, "class "));
}

static bool without_names(const CategoryList *l) {
  for (int i = 0; i < l->n; i++)
    if (l->by_name || has_name(&l->item[i])) return false;
  return l->n > 0;
}

static CategoryName *names_of(const CategoryList *l) {
  CategoryName *name = xcalloc((size_t)l->n, sizeof *name);
  for (int i = 0; i < l->n; i++) {
    const char *text = l->item[i].name ? l->item[i].name : "";
    name[i] = (CategoryName){digest_bytes(0, text, strnlen(text, NAME_BYTES)), digest_plain(text),
                             l->by_name || has_name(&l->item[i])};
  }
  return name;
}

// ---- saying ---------------------------------------------------------------------------------------------------------

// A list of the first few in one line, and how many more there are.
typedef struct FewPairs {
  char *text;
  size_t size;
  FILE *f;
  int n;
} FewPairs;

static void PRINTF_LIKE(2, 3) list_add(FewPairs *l, const char *fmt, ...) {
  if (!l->n) l->f = text_open(&l->text, &l->size);
  if (l->n++ >= SHOWN) return;
  if (l->n > 1) fputs(", ", l->f);
  va_list args;
  va_start(args, fmt);
  vfprintf(l->f, fmt, args);
  va_end(args);
}

// The caller frees it.
static char *list_end(FewPairs *l) {
  if (l->n > SHOWN) fprintf(l->f, " and %d more", l->n - SHOWN);
  text_close(l->f);
  return l->text;
}

enum { LABEL = 128 };

// "7 bird", without the parts that the list does not have.
static const char *label_of(const CategoryList *l, int i, char room[LABEL]) {
  const CocoCategory *c = &l->item[i];
  if (l->by_name)
    snprintf(room, LABEL, "%.80s", c->name);
  else
    snprintf(room, LABEL, "%lld%s%.80s", (long long)c->id, has_name(c) ? " " : "", has_name(c) ? c->name : "");
  return room;
}

static long long id_of(const CategoryList *l, int i) { return (long long)l->item[i].id; }
static const char *name_of(const CategoryList *l, int i) { return l->item[i].name ? l->item[i].name : ""; }

// ---- two lists ------------------------------------------------------------------------------------------------------

typedef struct CategoryMatch {
  const CategoryList *known, *own;
  CategoryName *known_name, *own_name;
  const int *objects;
  int *to;
  bool *taken; // [known->n]
} CategoryMatch;

static bool needed(const CategoryMatch *m, int i) { return !m->objects || m->objects[i] > 0; }

static bool same_id(const CategoryMatch *m, int k, int i) {
  return !m->known->by_name && !m->own->by_name && m->known->item[k].id == m->own->item[i].id;
}

typedef bool Rule(const CategoryMatch *m, int k, int i);

static bool both_named(const CategoryMatch *m, int k, int i) { return m->known_name[k].named && m->own_name[i].named; }

static bool is_same(const CategoryMatch *m, int k, int i) {
  return (same_id(m, k, i) || m->known->by_name || m->own->by_name) && m->known_name[k].exact == m->own_name[i].exact;
}

static bool has_same_name(const CategoryMatch *m, int k, int i) {
  return both_named(m, k, i) && m->known_name[k].exact == m->own_name[i].exact;
}

static bool has_near_name(const CategoryMatch *m, int k, int i) {
  return both_named(m, k, i) && m->known_name[k].plain == m->own_name[i].plain;
}

static bool is_nearly_same(const CategoryMatch *m, int k, int i) { return same_id(m, k, i) && has_near_name(m, k, i); }

// The only free category that the rule matches; -1: none, or several.
static int find(const CategoryMatch *m, Rule *rule, int i) {
  int found = -1;
  if (i < m->known->n && !m->taken[i] && rule == is_same && rule(m, i, i)) return i;
  for (int k = 0; k < m->known->n; k++) {
    if (m->taken[k] || !rule(m, k, i)) continue;
    if (found >= 0) return -1;
    found = k;
  }
  return found;
}

// Applies every rule to the categories with objects first, so that one without takes no category that another needs.
static void apply(const CategoryMatch *m, Rule *const *rule, int rules) {
  for (int i = 0; i < m->own->n; i++) m->to[i] = -1;
  memset(m->taken, 0, (size_t)m->known->n * sizeof *m->taken);
  for (int idle = 0; idle < 2; idle++)
    for (int r = 0; r < rules; r++)
      for (int i = 0; i < m->own->n; i++) {
        if (m->to[i] >= 0 || needed(m, i) == (bool)idle) continue;
        m->to[i] = find(m, rule[r], i);
        if (m->to[i] >= 0) m->taken[m->to[i]] = true;
      }
}

static void apply_names(const CategoryMatch *m) {
  static Rule *const rules[] = {is_same, has_same_name, is_nearly_same, has_near_name};
  apply(m, rules, COUNT(rules));
}

static void apply_ids(const CategoryMatch *m) { apply(m, (Rule *const[]){same_id}, 1); }

static bool all_found(const CategoryMatch *m) {
  for (int i = 0; i < m->own->n; i++)
    if (m->to[i] < 0 && needed(m, i)) return false;
  return true;
}

static bool all_matched(const CategoryMatch *m) {
  for (int i = 0; i < m->own->n; i++)
    if (m->to[i] < 0) return false;
  return true;
}

static bool take_in_order(const CategoryMatch *m, Notes *notes, Err *err) {
  if (m->own->n != m->known->n)
    return err_set(err, "%s does not name its %d categories, so %s must have as many, but it has %d", m->known->of,
                   m->known->n, m->own->of, m->own->n);
  for (int i = 0; i < m->own->n; i++) m->to[i] = i;
  notes_add(notes, "%s does not name its %d categories: those of %s are matched in the order of their ids",
            m->known->of, m->known->n, m->own->of);
  return true;
}

// The other list's category with this one's id, for a message; -1: none.
static int namesake(const CategoryMatch *m, int i) {
  for (int k = 0; k < m->known->n; k++)
    if (same_id(m, k, i)) return k;
  return -1;
}

// … or that has the same name to the eye.
static int lookalike(const CategoryMatch *m, int i) {
  for (int k = 0; k < m->known->n; k++)
    if (both_named(m, k, i) && !has_near_name(m, k, i) && looks_same(name_of(m->known, k), name_of(m->own, i)))
      return k;
  return -1;
}

// Counts the categories with the name of own category i, and lists them in `l`.
static int of_that_name(const CategoryMatch *m, const CategoryList *list, const CategoryName *name, int i,
                        FewPairs *l) {
  char room[LABEL];
  for (int k = 0; k < list->n; k++)
    if (name[k].named && name[k].plain == m->own_name[i].plain) list_add(l, "%s", label_of(list, k, room));
  return l->n;
}

// Refuses categories of the same name whose ids differ in the two lists: which is which cannot be told.
static bool refuse_ambiguous(const CategoryMatch *m, int i, Err *err) {
  FewPairs there = {0}, here = {0};
  const int known = m->own_name[i].named ? of_that_name(m, m->known, m->known_name, i, &there) : 0;
  if (!known) return false;
  of_that_name(m, m->own, m->own_name, i, &here);
  char *of_known = list_end(&there), *of_own = list_end(&here), room[LABEL];
  err_set(err, "%s: category %s is ambiguous: %s has %s, %s has %s; give each category its own name", m->own->of,
          label_of(m->own, i, room), m->own->of, of_own, m->known->of, of_known);
  free(of_known);
  free(of_own);
  return true;
}

static bool refuse(const CategoryMatch *m, Err *err) {
  FewPairs l = {0};
  for (int i = 0; i < m->own->n; i++) {
    if (m->to[i] >= 0 || !needed(m, i)) continue;
    if (!l.n && refuse_ambiguous(m, i, err)) return false;
    const int alike = l.n < SHOWN ? lookalike(m, i) : -1, k = namesake(m, i);
    char is[LABEL], there[LABEL];
    if (alike >= 0)
      list_add(&l, "%s (there it is %s, written with other Unicode characters)", label_of(m->own, i, is),
               label_of(m->known, alike, there));
    else if (k >= 0)
      list_add(&l, "%s (there it is %s)", label_of(m->own, i, is), label_of(m->known, k, there));
    else
      list_add(&l, "%s", label_of(m->own, i, is));
  }
  const int n = l.n;
  char *text = list_end(&l);
  err_set(err, "%s: %d categor%s %s not in %s: %s; rename or remove %s", m->own->of, n, n == 1 ? "y" : "ies",
          n == 1 ? "is" : "are", m->known->of, text, n == 1 ? "it" : "them");
  free(text);
  return false;
}

static void note_pairs(const CategoryMatch *m, Notes *notes) {
  FewPairs moved = {0}, near = {0}, extra = {0};
  for (int i = 0; i < m->own->n; i++) {
    const int k = m->to[i];
    char is[LABEL];
    if (k < 0) {
      list_add(&extra, "%s", label_of(m->own, i, is));
      continue;
    }
    if (!same_id(m, k, i) && !m->own->by_name && !m->known->by_name)
      list_add(&moved, "%s to %lld", label_of(m->own, i, is), id_of(m->known, k));
    if (both_named(m, k, i) && m->known_name[k].exact != m->own_name[i].exact)
      list_add(&near, "\"%.80s\" for \"%.80s\"", name_of(m->own, i), name_of(m->known, k));
  }
  char *text;
  if (moved.n) {
    notes_add(notes, "%s: ids differ from those of %s; categories are mapped by name: %s", m->own->of, m->known->of,
              text = list_end(&moved));
    free(text);
  }
  if (near.n) {
    notes_add(notes, "%s: names differ from those of %s only in case or spaces and are treated as the same: %s",
              m->own->of, m->known->of, text = list_end(&near));
    free(text);
  }
  if (extra.n) {
    notes_add(notes, "%s: categories without objects that are not in %s are left out: %s", m->own->of, m->known->of,
              text = list_end(&extra));
    free(text);
  }
}

// Matches by id if one of the lists has no names at all.
static bool match_without_names(const CategoryMatch *m, Notes *notes, Err *err) {
  const bool weights = weights_without_names(m->known);
  if (weights && !without_names(m->own)) return take_in_order(m, notes, err);
  apply_ids(m);
  if (!all_found(m)) return weights ? take_in_order(m, notes, err) : refuse(m, err);
  if (without_names(m->own))
    notes_add(notes, "%s does not name its categories: they are matched by id with those of %s", m->own->of,
              m->known->of);
  else
    notes_add(notes, "%s does not name its categories: those of %s are matched by id", m->known->of, m->own->of);
  note_pairs(m, notes);
  return true;
}

bool categories_match(const CategoryList *known, const CategoryList *own, const int *objects, int *to, Notes *notes,
                      Err *err) {
  CategoryMatch m = {.known = known,
                     .own = own,
                     .known_name = names_of(known),
                     .own_name = names_of(own),
                     .objects = objects,
                     .to = to,
                     .taken = xcalloc((size_t)known->n, sizeof *m.taken)};
  bool ok = true;
  apply_names(&m);
  const bool all = all_found(&m), bare = without_names(own) || without_names(known);
  if (bare ? !all_matched(&m) : !all && weights_without_names(known))
    ok = match_without_names(&m, notes, err);
  else if (all)
    note_pairs(&m, notes);
  else
    ok = refuse(&m, err);
  free(m.known_name);
  free(m.own_name);
  free(m.taken);
  return ok;
}

static bool same_pair(const CocoCategory *a, const CocoCategory *b) {
  return a->id == b->id && !strncmp(a->name ? a->name : "", b->name ? b->name : "", NAME_BYTES);
}

bool categories_in_place(const CategoryList *known, const CategoryList *own, const int *to) {
  bool same = known->n == own->n;
  for (int i = 0; same && i < own->n; i++) same = to[i] == i && same_pair(&known->item[i], &own->item[i]);
  return same;
}

bool categories_same(const CategoryList *known, const CategoryList *own, Err *err) {
  if (known->n != own->n)
    return err_set(err, "%s has %d categories, but %s has %d", known->of, known->n, own->of, own->n);
  for (int i = 0; i < own->n; i++)
    if (!same_pair(&known->item[i], &own->item[i]))
      return err_set(err, "category %d is %lld (%s) in %s, but %lld (%s) in %s", i + 1, id_of(known, i),
                     name_of(known, i), known->of, id_of(own, i), name_of(own, i), own->of);
  return true;
}

// ---- one list -------------------------------------------------------------------------------------------------------

typedef struct NameIndex {
  uint64_t plain;
  int at;
} NameIndex;

static int compare_names(const void *a, const void *b) {
  const NameIndex *p = a, *q = b;
  return p->plain != q->plain ? (p->plain > q->plain) - (p->plain < q->plain) : compare_int(&p->at, &q->at);
}

void categories_examine(const CategoryList *list, Notes *notes) {
  CategoryName *name = names_of(list);
  NameIndex *order = xcalloc((size_t)list->n, sizeof *order);
  FewPairs equal = {0}, near = {0}, bare = {0};
  for (int i = 0; i < list->n; i++) order[i] = (NameIndex){name[i].plain, i};
  for (int i = 0; i < list->n; i++)
    if (!name[i].named) list_add(&bare, "%lld", id_of(list, i));
  if (list->n) qsort(order, (size_t)list->n, sizeof *order, compare_names);
  for (int p = 1; p < list->n; p++) {
    const int a = order[p - 1].at, b = order[p].at;
    if (order[p].plain != order[p - 1].plain || !name[a].named) continue;
    if (name[a].exact == name[b].exact)
      list_add(&equal, "%.80s (%lld, %lld)", name_of(list, a), id_of(list, a), id_of(list, b));
    else
      list_add(&near, "\"%.80s\" and \"%.80s\"", name_of(list, a), name_of(list, b));
  }
  char *text;
  if (equal.n) {
    notes_add(notes, "%s: categories with the same name stay separate; rename or merge them: %s", list->of,
              text = list_end(&equal));
    free(text);
  }
  if (near.n) {
    notes_add(notes, "%s: category names that differ only in case or spaces; rename or merge them: %s", list->of,
              text = list_end(&near));
    free(text);
  }
  if (bare.n) {
    notes_add(notes, "%s: categories without a name; only their ids distinguish them: %s", list->of,
              text = list_end(&bare));
    free(text);
  }
  free(order);
  free(name);
}

// ---- a data set -----------------------------------------------------------------------------------------------------

bool coco_has_categories(const Coco *c, Err *err) {
  if (!c->no_categories || !c->num_anns) return true;
  return err_set(err,
                 "%s: no list \"categories\"; add one: \"categories\":[{\"id\":%lld,\"name\":\"…\"}, …], with every "
                 "category_id of the annotations",
                 c->path, (long long)c->anns[0].category_id);
}

void coco_take_categories(Coco *c, const CategoryList *known, const int *to) {
  for (int i = 0; i < c->num_anns; i++) {
    CocoAnn *a = &c->anns[i];
    if (a->category < 0) continue;
    a->category = to[a->category];
    a->category_id = known->item[a->category].id;
  }
  const bool own = !c->map || c->own_categories;
  for (int i = 0; own && i < c->num_categories; i++) free(c->categories[i].name);
  if (own) free(c->categories);
  c->categories = xcalloc((size_t)known->n, sizeof *c->categories);
  for (int i = 0; i < known->n; i++)
    c->categories[i] = (CocoCategory){.id = known->item[i].id,
                                      .name = xstrdup(known->item[i].name ? known->item[i].name : ""),
                                      .unnamed = known->item[i].unnamed};
  c->num_categories = known->n;
  c->own_categories = true;
  coco_digest_labels(c);
}
