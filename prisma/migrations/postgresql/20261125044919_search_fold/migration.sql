-- Agents are searched composed, with one form of sigma, and without the dot that the lower case of a dotted capital I leaves.
UPDATE "Agent" SET "searchText" = replace(replace(normalize("searchText", NFC), U&'\03C2', U&'\03C3'), U&'i\0307', 'i')
WHERE getdatabaseencoding() = 'UTF8' AND "searchText" <> replace(replace(normalize("searchText", NFC), U&'\03C2', U&'\03C3'), U&'i\0307', 'i');
