#include "inference/orientation.h"
#include "base/alloc.h"
#include "engine/state.h"

void orientation_settle(InferOptions *o, const Checkpoint *weights) {
  bool trained;
  if (o->from.exif == FROM_GIVEN) return;
  if (!o->data)
    o->exif = EXIF_YES;
  else if (state_exif(weights, &trained))
    o->exif = trained ? EXIF_YES : EXIF_NO;
}

char *orientation_text(const InferOptions *o, const Checkpoint *weights, bool upright, int turned, int read) {
  bool trained;
  const bool known = state_exif(weights, &trained), given = o->from.exif == FROM_GIVEN;
  const bool differs = known && trained != upright;
  if (turned == 0 || (turned < 0 && !differs && (given || !upright))) return NULL;
  char which[80] = "images with an EXIF orientation", other[64] = "";
  if (turned > 0) snprintf(which, sizeof which, "images with an EXIF orientation (%d of %d)", turned, read);
  if (!given && upright) snprintf(other, sizeof other, "; --exif no reads them as stored");
  if (!given && !upright) snprintf(other, sizeof other, "; --exif yes rotates them");
  return xasprintf("%s are %s%s%s", which, upright ? "rotated by it" : "read as stored",
                   !known     ? ""
                   : !differs ? ", as in training"
                   : trained  ? ", but training rotated images by it"
                              : ", but training read images as stored",
                   other);
}
