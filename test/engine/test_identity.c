// Catches a resumed run that silently goes on with other data, model or options.
#include "engine/identity.h"
#include "test/harness/test.h"

static const char was[] = "{\"seed\":1,\"steps\":300,\"schedule\":\"step\",\"lr\":0.01,\"sizes\":\"\",\"exif\":false}";

static const char *const amendable[] = {"steps", "schedule", "lr", NULL};

TEST(identity_names_the_first_difference) {
  Err err;
  EXPECT(identity_same(was, was, amendable, &err));
  EXPECT(!identity_same(was, "{\"seed\":1,\"steps\":300,\"schedule\":\"step\",\"lr\":0.005,\"exif\":true}", amendable,
                        &err));
  EXPECT_STR(err.msg, "it was made with \"lr\":0.01, but this run has \"lr\":0.005: give the same options, add --amend "
                      "to change them, or choose another --out");
  EXPECT(!identity_same(was, "{\"seed\":2,\"lr\":0.005}", amendable, &err));
  EXPECT_STR(err.msg,
             "it was made with \"seed\":1, but this run has \"seed\":2: give the same options or choose another --out");
  EXPECT(!identity_same(was, "{\"seed\":1,\"steps\":300,\"schedule\":\"step\",\"lr\":0.01,\"exif\":false}", amendable,
                        &err));
  EXPECT_STR(err.msg,
             "it was made with \"sizes\":\"\", but this run has \"sizes\":null: give the same options or choose "
             "another --out");
  EXPECT(!identity_same("{\"seed\":1", "{\"seed\":1", amendable, &err) && strstr(err.msg, "is malformed"));
  EXPECT(!identity_same("no JSON", was, amendable, &err) &&
         strstr(err.msg, "it was made with \"seed\":null, but this run has \""));
}

TEST(identity_amends_how_it_learns_alone) {
  Err err;
  Record changes = {0};
  record_begin(&changes);
  EXPECT(identity_amend(was, was, amendable, &changes, &err));
  EXPECT_STR(record_end(&changes), "{}");
  record_begin(&changes);
  EXPECT(identity_amend(was,
                        "{\"seed\":1,\"steps\":600,\"schedule\":\"cosine\",\"lr\":0.01,\"sizes\":\"\",\"exif\":false}",
                        amendable, &changes, &err));
  EXPECT_STR(record_end(&changes), "{\"steps\":[300,600],\"schedule\":[\"step\",\"cosine\"]}");
  EXPECT(!identity_amend(was, "{\"lr\":1,\"seed\":2}", amendable, &changes, &err));
  EXPECT_STR(err.msg, "it was made with \"seed\":1, but this run has \"seed\":2, which --amend cannot change");
  record_free(&changes);
}

TEST(identity_of_older_versions) {
  EXPECT(identity_is_older("{\"seed\":1,\"recipe\":\"auto\"}"));
  EXPECT(!identity_is_older("{\"seed\":1,\"conventions\":\"own\"}"));
}

TEST(identity_numbers) {
  double x = 0;
  const char *run = "{\"seed\":9000000000000000,\"part\":0.2,\"amp\":\"off\"}";
  EXPECT(identity_number(run, "seed", &x) && x == 9e15);
  EXPECT(identity_number(run, "part", &x) && x == 0.2);
  EXPECT(!identity_number(run, "amp", &x) && !identity_number(run, "lr", &x) && !identity_number("", "seed", &x));
}
