// What the doctor says of a set of classes.
#pragma once
#include "data/batches/source.h"

// Source.survey: opens training's split and the one to evaluate on, and looks at both. canvas.h = 0: ClassOptions'.
bool class_report(const SourceSurvey *r);
