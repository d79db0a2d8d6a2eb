// Whether the masks of a data set can be used, and in what form they are where they cannot.
#pragma once
#include <stdbool.h>
#include "data/coco/coco.h"

// What follows "most are": "lists of numbers; COCO's are lists of such lists, …".
extern const char *const seg_form_texts[SEG_FORMS];

typedef struct MaskForms {
  int masks;            // that objects and crowds of the file have, usable or not
  int unusable;         // of these, all of the mask
  int form[SEG_FORMS];  // of the unusable ones
  const CocoAnn *first; // unusable one; NULL: there is none
} MaskForms;

MaskForms mask_forms(const Coco *c);
// The form that most of the unusable ones have, if more than half do; else FORM_OTHER.
SegForm mask_forms_most(const MaskForms *f);
// False where most masks cannot be used, naming the form, the first annotation and what to do.
bool mask_forms_check(const Coco *c, Err *err);
