// What REST serves beside the procedures: streams of events and of bytes.

export const EVENTS_PATH = '/api/v1/executions/{id}/events'
export const CHAT_EVENTS_PATH = '/api/v1/chats/{id}/events'
export const MEDIA_PATH = '/api/v1/media'
export const SPACE_UPLOAD_PATH = '/api/files/upload'
export const AUDIT_EXPORT_PATH = '/api/v1/audit/export'
export const CONTENT_PATH = '/api/v1/media/{id}/content'

/** Returns the path that answers as another one does with `stream: true` (contract-2.md section 1.14). */
export const streamPathOf = (path: string): string => `${path}/stream`

/** Matches such a path, with a slash at its end or without, and captures the id in it, if there is one. */
export const patternOf = (path: string, id = '[\\w-]+'): RegExp => new RegExp(`^${path.replace('{id}', `(${id})`)}/?$`)
