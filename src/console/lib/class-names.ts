/** Joins class names, without empty ones. */
export const cn = (...names: readonly (string | false | null | undefined)[]): string => names.filter(Boolean).join(' ')
