// The album of the doctor's page: selects images, draws their pictures and describes them.
#pragma once
#include "data/survey/diagnosis.h"
#include "page/document.h"
#include "page/picture_folder.h"

// Writes a JSON array of at most `max` images of the open splits: up to half have a defect, the others are spread over
// the categories. Pictures go to the folder or, if that is NULL, into the page.
bool album_write(Document *to, const Diagnosis *f, int max, PictureFolder *folder, Err *err);
