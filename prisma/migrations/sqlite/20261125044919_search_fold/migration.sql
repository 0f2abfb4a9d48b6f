-- Agents are searched with one form of sigma, and without the dot that the lower case of a dotted capital I leaves.
-- SQLite cannot compose letters and their accents: an agent whose texts are decomposed is found again once it is saved.
UPDATE "Agent" SET "searchText" = replace(replace("searchText", char(962), char(963)), 'i' || char(775), 'i')
WHERE instr("searchText", char(962)) OR instr("searchText", 'i' || char(775));
