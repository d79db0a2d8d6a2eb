// Names of what ./train and ./infer leave in a folder, facts, for those that draw pages of them to find.
#pragma once

#define RUN_LOG "log.jsonl"
#define RUN_RECORD "run.json"
#define RUN_EVALUATION "evaluation.json"
#define RUN_DEFECTS "defects.tsv" // of a data set, of ./infer, too
#define RUN_PICTURES "pictures"   // a folder, of an evaluation's and of scores'
#define RUN_GOES_ON "running"     // the state in the record of a run whose process has not written how it ended

// Of ./infer, which may use the folder of a run.
#define SCORES "scores.json"
#define SCORES_PAGE "evaluation.html"

// What folders of runs of version 1.1 and older have in place of run.json. Version 1.2 reads them.
#define OLDER_RECORD "report/session.json"
