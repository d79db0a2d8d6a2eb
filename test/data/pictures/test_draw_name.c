// Catches class names that overlays write as question marks.
#include "base/error.h"
#include "data/pictures/draw_name.h"
#include "test/harness/test.h"

TEST(draw_name_is_ascii) {
  static const struct {
    const char *name, *drawn;
  } cases[] = {{"traffic light", "traffic light"},
               {"", ""},
               {"~!\"#", "~!\"#"},
               {"Äpfel, Café, año", "Apfel, Cafe, ano"},
               {"A\xcc\x88pfel", "Apfel"},
               {"Straße, Øl, cœur, Łódź", "Strasse, Ol, coeur, Lodz"},
               {"Việt", "Viet"},
               {"Θήτα, ψωμί, ΑΥΓΟ", "Thita, psomi, AYGO"},
               {"Щука, жёлтый, Ёж, Їжак", "Shchuka, zheltyi, Ezh, Izhak"},
               {"Џ љ ђ", "Dz lj dj"},
               {"a\u2013b \u2019c\u2019", "a-b 'c'"},
               {"bird…", "bird..."},
               {"猫", "class 17"},
               {"cat 猫", "class 17"},
               {"한글", "class 17"},
               {"\xf0\x9f\x90\x88", "class 17"},
               {"tab\there", "class 17"},
               {"\xcc\x88", "class 17"},
               {"bad\xff", "class 17"}};
  for (int i = 0; i < COUNT(cases); i++) {
    char *drawn = draw_name(cases[i].name, 17);
    EXPECT_STR(drawn, cases[i].drawn);
    free(drawn);
  }
}
