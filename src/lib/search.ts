import { z } from 'zod'

/**
 * Normalizes a text for searching: NFC, lower case (the databases differ in case folding) with one form of sigma and
 * without the second dot of a lowercased İ, and without LIKE wildcards.
 */
export const searchable = (text: string): string =>
  text
    .normalize('NFC')
    .toLowerCase()
    .replaceAll('\u03c2', '\u03c3')
    .replaceAll('i\u0307', 'i')
    .replace(/[%_\\]/g, (mark) => String.fromCharCode(0xe000 + mark.charCodeAt(0)))

/** Returns the column with the texts of a row that searches look in. */
export const searchedIn = (...texts: readonly (string | null | undefined)[]) => ({
  searchText: searchable(texts.map((text) => text ?? '').join('\n')),
})

/** Returns the filter for rows with a text in the column of {@link searchedIn}, without any text an empty one. */
export const having = (search: string | undefined) => (search ? { searchText: { contains: searchable(search) } } : {})

/** Creates the query field of a search in the named fields. */
export const searchInput = (rows: string, fields: string) =>
  z.string().max(200).trim().optional().describe(`Only ${rows} with this text in ${fields}, in any case`)
