#include "data/batches/stratify.h"
#include <math.h>
#include <stdbool.h>
#include <stdlib.h>
#include "base/alloc.h"

// Categories are followed by two more: of the images without one, and of all images, which has the most groups and is
// therefore divided last.
typedef struct Division {
  const Strata *s;
  int parts, categories;
  int *first; // [groups + 1] as in Strata, with the further categories
  CategoryCount *of;
  int *groups, *left;          // [categories] groups; those that have no part yet
  int *images;                 // [categories]
  int *members, *first_member; // [categories + 1] the groups of a category, the largest first
  int64_t *lacks;              // [categories, parts] images that a part lacks, in units of 1 / sum of the shares
  int *has;                    // [categories, parts] groups
  int *part;                   // [groups] -1: none yet
  int64_t whole;               // sum of the shares
  bool equal;                  // the shares are
} Division;

static void list_categories(Division *v) {
  const Strata *s = v->s;
  v->first = xmalloc(((size_t)s->groups + 1) * sizeof *v->first);
  v->of = xmalloc(((size_t)s->first[s->groups] + 2 * (size_t)s->groups) * sizeof *v->of);
  int n = 0;
  for (int g = 0; g < s->groups; g++) {
    v->first[g] = n;
    for (int k = s->first[g]; k < s->first[g + 1]; k++) v->of[n++] = s->of[k];
    if (s->first[g] == s->first[g + 1]) v->of[n++] = (CategoryCount){s->categories, s->images[g]};
    v->of[n++] = (CategoryCount){s->categories + 1, s->images[g]};
  }
  v->first[s->groups] = n;
}

typedef struct SizedGroup {
  int images, group;
  uint64_t order;
} SizedGroup;

static int compare_sized(const void *a, const void *b) {
  const SizedGroup *p = a, *q = b;
  if (p->images != q->images) return q->images - p->images;
  return (p->order > q->order) - (p->order < q->order);
}

static void list_members(Division *v) {
  const Strata *s = v->s;
  SizedGroup *sized = xmalloc((size_t)s->groups * sizeof *sized);
  for (int g = 0; g < s->groups; g++) sized[g] = (SizedGroup){s->images[g], g, s->order[g]};
  qsort(sized, (size_t)s->groups, sizeof *sized, compare_sized);
  v->groups = xcalloc((size_t)v->categories, sizeof *v->groups);
  for (int k = 0; k < v->first[s->groups]; k++) v->groups[v->of[k].category]++;
  v->first_member = xcalloc((size_t)v->categories + 1, sizeof *v->first_member);
  v->members = xmalloc((size_t)v->first[s->groups] * sizeof *v->members);
  v->left = xcalloc((size_t)v->categories, sizeof *v->left);
  for (int c = 0; c < v->categories; c++) v->first_member[c + 1] = v->first_member[c] + v->groups[c];
  for (int i = 0; i < s->groups; i++)
    for (int g = sized[i].group, k = v->first[g]; k < v->first[g + 1]; k++) {
      const int c = v->of[k].category;
      v->members[v->first_member[c] + v->left[c]++] = g;
    }
  free(sized);
}

static void measure_shares(Division *v, const int64_t *share) {
  v->equal = true;
  for (int p = 0; p < v->parts; p++) {
    v->whole += share[p];
    v->equal &= share[p] == share[0];
  }
  v->images = xcalloc((size_t)v->categories, sizeof *v->images);
  for (int k = 0; k < v->first[v->s->groups]; k++) v->images[v->of[k].category] += v->of[k].images;
  for (int k = 0; k < v->first[v->s->groups]; k++)
    for (int p = 0; p < v->parts; p++)
      v->lacks[(size_t)v->of[k].category * (size_t)v->parts + (size_t)p] += v->of[k].images * share[p];
  // A part gets at least an image of every category that has two groups.
  for (int c = 0; c < v->categories; c++)
    for (int p = 0; p < v->parts; p++) {
      int64_t *lacks = &v->lacks[(size_t)c * (size_t)v->parts + (size_t)p];
      if (v->groups[c] > 1 && *lacks < v->whole) *lacks = v->whole;
    }
}

// Moves the group, or gives it its first part.
static void put(Division *v, int group, int part) {
  const int was = v->part[group];
  for (int k = v->first[group]; k < v->first[group + 1]; k++) {
    const size_t row = (size_t)v->of[k].category * (size_t)v->parts;
    const int64_t images = v->of[k].images * v->whole;
    v->lacks[row + (size_t)part] -= images;
    v->has[row + (size_t)part]++;
    if (was >= 0) {
      v->lacks[row + (size_t)was] += images;
      v->has[row + (size_t)was]--;
    } else {
      v->left[v->of[k].category]--;
    }
  }
  v->part[group] = part;
}

static const int64_t *lacks_of_all(const Division *v) {
  return v->lacks + (size_t)(v->categories - 1) * (size_t)v->parts;
}

// Whether the part comes closer to its share of all images by the group's.
static bool fits(const Division *v, int group, int part) {
  return 2 * lacks_of_all(v)[part] >= v->s->images[group] * v->whole;
}

// Of the parts that the group fits, or of all if it fits none, the one that lacks most images of the category; of
// several, the one that lacks most of all images.
static int neediest(const Division *v, int category, int group) {
  const int64_t *lacks = v->lacks + (size_t)category * (size_t)v->parts, *all = lacks_of_all(v);
  int best = 0;
  for (int p = 1; p < v->parts; p++) {
    const bool fit = fits(v, group, p), best_fit = fits(v, group, best);
    if (fit != best_fit ? fit : lacks[p] > lacks[best] || (lacks[p] == lacks[best] && all[p] > all[best])) best = p;
  }
  return best;
}

// The category with the fewest groups that have no part; of several, the one with the fewest groups.
static int rarest(const Division *v) {
  int best = -1;
  for (int c = 0; c < v->categories; c++)
    if (v->left[c] > 0 &&
        (best < 0 || v->left[c] < v->left[best] || (v->left[c] == v->left[best] && v->groups[c] < v->groups[best])))
      best = c;
  return best;
}

static bool stays(const Division *v, int category) { return v->groups[category] == 1 && !v->equal; }

static void divide(Division *v) {
  for (int c; (c = rarest(v)) >= 0;)
    for (int m = v->first_member[c]; m < v->first_member[c + 1]; m++)
      if (v->part[v->members[m]] < 0) put(v, v->members[m], stays(v, c) ? 0 : neediest(v, c, v->members[m]));
}

// ---- moves ----------------------------------------------------------------------------------------------------------

// Whether every category of the group that has at least `groups` of them is in as many parts after the move as before.
static bool may_move(const Division *v, int group, int to, int groups) {
  const int from = v->part[group];
  for (int k = v->first[group]; k < v->first[group + 1]; k++) {
    const int c = v->of[k].category, *has = v->has + (size_t)c * (size_t)v->parts;
    if (has[from] == 1 && has[to] > 0 && v->groups[c] >= groups) return false;
    if (stays(v, c) && from == 0) return false;
  }
  return true;
}

// How much a move changes the sum, over categories and parts, of (images lacking)² / images of the category.
static double change(const Division *v, int group, int to) {
  const int from = v->part[group];
  double sum = 0;
  for (int k = v->first[group]; k < v->first[group + 1]; k++) {
    const int c = v->of[k].category;
    const int64_t *lacks = v->lacks + (size_t)c * (size_t)v->parts;
    const double images = v->of[k].images, less = (double)lacks[to] / (double)v->whole,
                 more = (double)lacks[from] / (double)v->whole;
    sum += 2 * images * (images + more - less) / v->images[c];
  }
  return sum;
}

// Moves the group; where it does not fit, in exchange for the group whose move back changes the sum least, and by less
// than `most`, as may_move allows with `groups`. Looks for it among the groups after member m of all. False: nothing
// was moved.
static bool move(Division *v, int group, int to, int groups, int m, double most) {
  enum { LOOKED_AT = 1000 };
  const int from = v->part[group], *all = v->members + v->first_member[v->categories - 1], n = v->s->groups;
  const bool fit = fits(v, group, to);
  int best = -1;
  put(v, group, to);
  for (int i = 1; !fit && i < n && i <= LOOKED_AT; i++) {
    const int other = all[(m + i) % n];
    if (v->part[other] != to || other == group || !fits(v, other, from) || !may_move(v, other, from, groups)) continue;
    const double by = change(v, other, from);
    if (by >= most) continue;
    most = by;
    best = other;
  }
  if (best >= 0) put(v, best, from);
  if (!fit && best < 0) put(v, group, from);
  return fit || best >= 0;
}

// ---- categories that are in too few parts ---------------------------------------------------------------------------

static int parts_with(const Division *v, int category) {
  int n = 0;
  for (int p = 0; p < v->parts; p++) n += v->has[(size_t)category * (size_t)v->parts + (size_t)p] > 0;
  return n;
}

// The smallest group whose move gets the category into another part: one that lacks as many images as possible. A rarer
// category may have to leave it.
static bool spread(Division *v, int category) {
  const int *has = v->has + (size_t)category * (size_t)v->parts;
  const int64_t *all = lacks_of_all(v);
  for (int m = v->first_member[category + 1] - 1; m >= v->first_member[category]; m--) {
    const int group = v->members[m];
    int best = -1;
    if (has[v->part[group]] < 2) continue;
    for (int p = 0; p < v->parts; p++)
      if (has[p] == 0 && (best < 0 || all[p] > all[best]) && may_move(v, group, p, 0)) best = p;
    if (best >= 0 && move(v, group, best, v->groups[category], 0, INFINITY)) return true;
  }
  return false;
}

// Ends: every move increases the number of parts that a category is in, and decreases that of rarer ones at most.
static void spread_all(Division *v) {
  for (bool moved = true; moved;) {
    moved = false;
    for (int c = 0; c < v->categories; c++)
      while (parts_with(v, c) < (v->groups[c] < v->parts ? v->groups[c] : v->parts) && spread(v, c)) moved = true;
  }
}

// ---- evenness -------------------------------------------------------------------------------------------------------

// Moves or exchanges groups as long as that makes the division more even.
static void even_out(Division *v) {
  enum { MOST_ROUNDS = 20 };
  const double little = 1e-9;
  bool moved = true;
  for (int round = 0; moved && round < MOST_ROUNDS; round++) {
    moved = false;
    const int *all = v->members + v->first_member[v->categories - 1];
    for (int m = 0; m < v->s->groups; m++) {
      const int group = all[m];
      int best = -1;
      double least = -little;
      for (int p = 0; p < v->parts; p++) {
        const double by = p == v->part[group] ? 0 : change(v, group, p);
        if (by >= least || !may_move(v, group, p, 0)) continue;
        least = by;
        best = p;
      }
      moved |= best >= 0 && move(v, group, best, 0, m, -least - little);
    }
  }
}

void stratify(const Strata *s, const int64_t *share, int parts, int *part) {
  Division v = {.s = s, .parts = parts, .categories = s->categories + 2, .part = part};
  const size_t cells = (size_t)v.categories * (size_t)parts;
  v.lacks = xcalloc(cells, sizeof *v.lacks);
  v.has = xcalloc(cells, sizeof *v.has);
  for (int g = 0; g < s->groups; g++) part[g] = -1;
  list_categories(&v);
  list_members(&v);
  measure_shares(&v, share);
  divide(&v);
  spread_all(&v);
  even_out(&v);
  free(v.images);
  free(v.first);
  free(v.of);
  free(v.groups);
  free(v.left);
  free(v.members);
  free(v.first_member);
  free(v.lacks);
  free(v.has);
}
