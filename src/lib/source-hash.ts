import { createHash } from 'node:crypto'

/** Returns the source of a content security policy that permits exactly this script or style. */
export const sourceHash = (text: string): string => `'sha256-${createHash('sha256').update(text).digest('base64')}'`
