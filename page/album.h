// The album of the doctor's page: which images it shows, their pictures, and what there is to say of each.
#pragma once
#include "data/survey/diagnosis.h"
#include "page/document.h"
#include "page/picture_folder.h"

// Writes a JSON array of at most `max` images of the splits that are open: half with a defect where there are so many,
// the others spread over the categories. Pictures go to the folder or, where that is NULL, into the page.
bool album_write(Document *to, const Diagnosis *f, int max, PictureFolder *folder, Err *err);
