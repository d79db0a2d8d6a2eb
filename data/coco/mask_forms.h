// Checks whether a data set's masks can be used, and identifies the form of unusable ones.
#pragma once
#include <stdbool.h>
#include "data/coco/coco.h"

// The end of "most are …": "lists of numbers; COCO's are lists of such lists, …".
extern const char *const seg_form_texts[SEG_FORMS];

typedef struct MaskForms {
  int masks;            // of the file's objects and crowds, usable or not
  int unusable;         // masks that cannot be used at all
  int form[SEG_FORMS];  // number of unusable masks by form
  const CocoAnn *first; // the first unusable one; NULL: there is none
} MaskForms;

MaskForms mask_forms(const Coco *c);
// The form of more than half of the unusable masks; FORM_OTHER if there is none.
SegForm mask_forms_most(const MaskForms *f);
// False if most masks cannot be used, naming the form, the first annotation and what to do.
bool mask_forms_check(const Coco *c, Err *err);
