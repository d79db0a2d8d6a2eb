#include "inference/orientation.h"
#include "base/alloc.h"
#include "engine/state.h"

void orientation_settle(InferOptions *o, const Checkpoint *weights) {
  bool trained;
  if (o->from.exif == FROM_GIVEN) return;
  o->exif = !o->data || (state_exif(weights, &trained) && trained);
}

char *orientation_text(const InferOptions *o, const Checkpoint *weights, int turned, int read) {
  bool trained;
  const bool known = state_exif(weights, &trained), given = o->from.exif == FROM_GIVEN;
  const bool differs = known && trained != o->exif;
  if (turned == 0 || (turned < 0 && !differs && (given || !o->exif))) return NULL;
  char which[80] = "images with an EXIF orientation", other[64] = "";
  if (turned > 0) snprintf(which, sizeof which, "images with an EXIF orientation (%d of %d)", turned, read);
  if (!given && o->exif) snprintf(other, sizeof other, "; --exif=false reads them as stored");
  if (!given && !o->exif) snprintf(other, sizeof other, "; --exif rotates them");
  return xasprintf("%s are %s%s%s", which, o->exif ? "rotated by it" : "read as stored",
                   !known     ? ""
                   : !differs ? ", as in training"
                   : trained  ? ", but training rotated images by it"
                              : ", but training read images as stored",
                   other);
}
