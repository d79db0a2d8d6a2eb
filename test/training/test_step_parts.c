// Catches timed steps that change training or report wrong parts.
#include "test/harness/small_engine.h"
#include "test/harness/test.h"
#include "training/step_parts.h"

enum { STEPS = 10 };

// Losses of a session of STEPS steps, of which `steps` are said to come. Returns what was measured.
static StepParts run(int64_t steps, bool by_another, double loss[STEPS]) {
  Engine e;
  StepParts p = {0};
  const ModelConfig config = small_config(NORM_GN, CLASSES);
  int read = 0;
  small_engine(&e, &config);
  params_randomise(&e.params, 1);
  if (by_another) engine_time_nodes(&e, true, NULL);
  for (int i = 0; i < STEPS; i++) {
    read += step_parts_before(&p, &e, i, steps);
    const StepResult s = small_step(&e, i);
    step_parts_result(&p, &s);
    loss[i] = s.total;
    EXPECT(by_another || e.timing == p.timing);
  }
  EXPECT_INT(read, p.steps > 0);
  EXPECT(!p.timing);
  engine_close(&e);
  return p;
}

TEST(step_parts_of_a_session) {
  double timed[STEPS], not_timed[STEPS], forward = 0, backward = 0;
  const StepParts p = run(STEPS, false, timed), none = run(9, false, not_timed);
  EXPECT(p.steps == 3 && p.results == 3 && p.parts > 2 && p.update > 0 && p.transfer >= 0);
  EXPECT(none.steps == 0 && none.parts == 0 && none.results == 0);
  for (int i = 0; i < STEPS; i++) EXPECT(timed[i] == not_timed[i]);
  for (int i = 0; i < p.parts; i++) {
    EXPECT(p.part[i].forward >= 0 && p.part[i].backward >= 0);
    for (int k = 0; k < i; k++) EXPECT(strcmp(p.part[i].name, p.part[k].name));
    forward += p.part[i].forward;
    backward += p.part[i].backward;
  }
  EXPECT(forward > 0 && backward > 0);
}

// --profile and --trace time all steps, and go on doing so.
TEST(step_parts_leave_others_alone) {
  double loss[STEPS];
  const StepParts p = run(STEPS, true, loss);
  EXPECT(p.steps == 0 && p.parts == 0);
}
