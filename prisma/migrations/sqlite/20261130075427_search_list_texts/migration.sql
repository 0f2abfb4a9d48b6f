-- Fills the searched texts of rows that exist. SQLite's lower() knows ASCII only, so the capitals of Latin, Greek and Cyrillic
-- alphabets are replaced one by one. SQLite cannot compose letters and their accents: a row whose texts are decomposed is found
-- again after its next change.
UPDATE "Space" SET "searchText" = replace(replace(replace(lower("name" || char(10) || coalesce("description", '')), '%', char(57381)), '_', char(57439)), '\', char(57436));
UPDATE "Task" SET "searchText" = replace(replace(replace(lower("title"), '%', char(57381)), '_', char(57439)), '\', char(57436));
UPDATE "Mission" SET "searchText" = replace(replace(replace(lower("title"), '%', char(57381)), '_', char(57439)), '\', char(57436));

CREATE TABLE "FoldedText" (
  "table" TEXT NOT NULL, "id" TEXT NOT NULL, "text" TEXT NOT NULL, PRIMARY KEY ("table", "id")
);
INSERT INTO "FoldedText"
  SELECT 'Space', "id", "searchText" FROM "Space" WHERE "searchText" GLOB '*[^ -~]*'
  UNION ALL SELECT 'Task', "id", "searchText" FROM "Task" WHERE "searchText" GLOB '*[^ -~]*'
  UNION ALL SELECT 'Mission', "id", "searchText" FROM "Mission" WHERE "searchText" GLOB '*[^ -~]*';
UPDATE "FoldedText" SET "text" =
  replace(replace(replace(replace(replace(replace(replace(replace(replace(replace(replace(replace(replace(replace(replace(replace(replace(replace(replace(replace("text", 'À', 'à'), 'Á', 'á'), 'Â', 'â'), 'Ã', 'ã'), 'Ä', 'ä'), 'Å', 'å'), 'Æ', 'æ'), 'Ç', 'ç'), 'È', 'è'), 'É', 'é'), 'Ê', 'ê'), 'Ë', 'ë'), 'Ì', 'ì'), 'Í', 'í'), 'Î', 'î'), 'Ï', 'ï'), 'Ð', 'ð'), 'Ñ', 'ñ'), 'Ò', 'ò'), 'Ó', 'ó');
UPDATE "FoldedText" SET "text" =
  replace(replace(replace(replace(replace(replace(replace(replace(replace(replace(replace(replace(replace(replace(replace(replace(replace(replace(replace(replace("text", 'Ô', 'ô'), 'Õ', 'õ'), 'Ö', 'ö'), 'Ø', 'ø'), 'Ù', 'ù'), 'Ú', 'ú'), 'Û', 'û'), 'Ü', 'ü'), 'Ý', 'ý'), 'Þ', 'þ'), 'Ā', 'ā'), 'Ă', 'ă'), 'Ą', 'ą'), 'Ć', 'ć'), 'Ĉ', 'ĉ'), 'Ċ', 'ċ'), 'Č', 'č'), 'Ď', 'ď'), 'Đ', 'đ'), 'Ē', 'ē');
UPDATE "FoldedText" SET "text" =
  replace(replace(replace(replace(replace(replace(replace(replace(replace(replace(replace(replace(replace(replace(replace(replace(replace(replace(replace(replace("text", 'Ĕ', 'ĕ'), 'Ė', 'ė'), 'Ę', 'ę'), 'Ě', 'ě'), 'Ĝ', 'ĝ'), 'Ğ', 'ğ'), 'Ġ', 'ġ'), 'Ģ', 'ģ'), 'Ĥ', 'ĥ'), 'Ħ', 'ħ'), 'Ĩ', 'ĩ'), 'Ī', 'ī'), 'Ĭ', 'ĭ'), 'Į', 'į'), 'İ', 'i'), 'Ĳ', 'ĳ'), 'Ĵ', 'ĵ'), 'Ķ', 'ķ'), 'Ĺ', 'ĺ'), 'Ļ', 'ļ');
UPDATE "FoldedText" SET "text" =
  replace(replace(replace(replace(replace(replace(replace(replace(replace(replace(replace(replace(replace(replace(replace(replace(replace(replace(replace(replace("text", 'Ľ', 'ľ'), 'Ŀ', 'ŀ'), 'Ł', 'ł'), 'Ń', 'ń'), 'Ņ', 'ņ'), 'Ň', 'ň'), 'Ŋ', 'ŋ'), 'Ō', 'ō'), 'Ŏ', 'ŏ'), 'Ő', 'ő'), 'Œ', 'œ'), 'Ŕ', 'ŕ'), 'Ŗ', 'ŗ'), 'Ř', 'ř'), 'Ś', 'ś'), 'Ŝ', 'ŝ'), 'Ş', 'ş'), 'Š', 'š'), 'Ţ', 'ţ'), 'Ť', 'ť');
UPDATE "FoldedText" SET "text" =
  replace(replace(replace(replace(replace(replace(replace(replace(replace(replace(replace(replace(replace(replace(replace(replace(replace(replace(replace(replace("text", 'Ŧ', 'ŧ'), 'Ũ', 'ũ'), 'Ū', 'ū'), 'Ŭ', 'ŭ'), 'Ů', 'ů'), 'Ű', 'ű'), 'Ų', 'ų'), 'Ŵ', 'ŵ'), 'Ŷ', 'ŷ'), 'Ÿ', 'ÿ'), 'Ź', 'ź'), 'Ż', 'ż'), 'Ž', 'ž'), 'Ά', 'ά'), 'Έ', 'έ'), 'Ή', 'ή'), 'Ί', 'ί'), 'Ό', 'ό'), 'Ύ', 'ύ'), 'Ώ', 'ώ');
UPDATE "FoldedText" SET "text" =
  replace(replace(replace(replace(replace(replace(replace(replace(replace(replace(replace(replace(replace(replace(replace(replace(replace(replace(replace(replace("text", 'Α', 'α'), 'Β', 'β'), 'Γ', 'γ'), 'Δ', 'δ'), 'Ε', 'ε'), 'Ζ', 'ζ'), 'Η', 'η'), 'Θ', 'θ'), 'Ι', 'ι'), 'Κ', 'κ'), 'Λ', 'λ'), 'Μ', 'μ'), 'Ν', 'ν'), 'Ξ', 'ξ'), 'Ο', 'ο'), 'Π', 'π'), 'Ρ', 'ρ'), 'Σ', 'σ'), 'Τ', 'τ'), 'Υ', 'υ');
UPDATE "FoldedText" SET "text" =
  replace(replace(replace(replace(replace(replace(replace(replace(replace(replace(replace(replace(replace(replace(replace(replace(replace(replace(replace(replace("text", 'Φ', 'φ'), 'Χ', 'χ'), 'Ψ', 'ψ'), 'Ω', 'ω'), 'Ϊ', 'ϊ'), 'Ϋ', 'ϋ'), 'Ѐ', 'ѐ'), 'Ё', 'ё'), 'Ђ', 'ђ'), 'Ѓ', 'ѓ'), 'Є', 'є'), 'Ѕ', 'ѕ'), 'І', 'і'), 'Ї', 'ї'), 'Ј', 'ј'), 'Љ', 'љ'), 'Њ', 'њ'), 'Ћ', 'ћ'), 'Ќ', 'ќ'), 'Ѝ', 'ѝ');
UPDATE "FoldedText" SET "text" =
  replace(replace(replace(replace(replace(replace(replace(replace(replace(replace(replace(replace(replace(replace(replace(replace(replace(replace(replace(replace("text", 'Ў', 'ў'), 'Џ', 'џ'), 'А', 'а'), 'Б', 'б'), 'В', 'в'), 'Г', 'г'), 'Д', 'д'), 'Е', 'е'), 'Ж', 'ж'), 'З', 'з'), 'И', 'и'), 'Й', 'й'), 'К', 'к'), 'Л', 'л'), 'М', 'м'), 'Н', 'н'), 'О', 'о'), 'П', 'п'), 'Р', 'р'), 'С', 'с');
UPDATE "FoldedText" SET "text" =
  replace(replace(replace(replace(replace(replace(replace(replace(replace(replace(replace(replace(replace(replace(replace("text", 'Т', 'т'), 'У', 'у'), 'Ф', 'ф'), 'Х', 'х'), 'Ц', 'ц'), 'Ч', 'ч'), 'Ш', 'ш'), 'Щ', 'щ'), 'Ъ', 'ъ'), 'Ы', 'ы'), 'Ь', 'ь'), 'Э', 'э'), 'Ю', 'ю'), 'Я', 'я'), 'ς', 'σ');
UPDATE "FoldedText" SET "text" = replace("text", 'i' || char(775), 'i') WHERE instr("text", char(775));
UPDATE "Space" SET "searchText" = f."text" FROM "FoldedText" f
  WHERE f."table" = 'Space' AND f."id" = "Space"."id" AND f."text" <> "Space"."searchText";
UPDATE "Task" SET "searchText" = f."text" FROM "FoldedText" f
  WHERE f."table" = 'Task' AND f."id" = "Task"."id" AND f."text" <> "Task"."searchText";
UPDATE "Mission" SET "searchText" = f."text" FROM "FoldedText" f
  WHERE f."table" = 'Mission' AND f."id" = "Mission"."id" AND f."text" <> "Mission"."searchText";
DROP TABLE "FoldedText";
