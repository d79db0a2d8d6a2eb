// Divides groups of images into parts so that each part gets its share of the images of every category.
#pragma once
#include <stdint.h>

typedef struct CategoryCount {
  int category;
  int images; // of the group, that have it: at least 1
} CategoryCount;

typedef struct Strata {
  int groups, categories;
  const int *images;       // [groups]
  const uint64_t *order;   // [groups] different numbers, which break ties
  const int *first;        // [groups + 1] the categories of group g are of[first[g] … first[g + 1])
  const CategoryCount *of; // a category at most once per group
} Strata;

// part[groups] gets 0 … parts - 1; part i shall get share[i] of the sum of all shares of the images.
//
// Iterative stratification (Sechidis, Tsoumakas, Vlahavas: On the stratification of multi-label data, 2011), with
// groups in place of examples: the category with the fewest groups left is divided first, its largest groups first,
// each into the part that lacks most images of the category, as long as that brings the part closer to its share of all
// images: rare categories, which a small part cannot all have, do not make it larger. Then groups are moved, or
// exchanged where parts have their share: those of a category of n groups that is in fewer than min(n, parts) parts, if
// only rarer categories lose one by it; and others, as long as that makes the division more even. The only group of a
// category stays in part 0 if the shares differ. All this also holds for two further categories: of all images, and of
// those without a category. Groups stay whole, so that a large one can make a part larger than its share.
//
// The result depends only on the arguments, and not on the order of groups.
void stratify(const Strata *s, const int64_t *share, int parts, int *part);
