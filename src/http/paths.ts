import type { IncomingMessage } from 'node:http'

// REST paths besides the procedures: event and byte streams.

export const EVENTS_PATH = '/api/v1/executions/{id}/events'
export const CHAT_EVENTS_PATH = '/api/v1/chats/{id}/events'
export const TASK_CHANGES_PATH = '/api/v1/tasks/events'
export const APPROVAL_CHANGES_PATH = '/api/v1/approvals/events'
export const FEED_PATH = '/api/v1/events'
export const FEED_STREAM_PATH = '/api/v1/events/stream'
export const MEDIA_PATH = '/api/v1/media'
export const SPACE_UPLOAD_PATH = '/api/files/upload'
export const AUDIT_EXPORT_PATH = '/api/v1/audit/export'
export const CONTENT_PATH = '/api/v1/media/{id}/content'

/** Returns the path that answers as another one does with `stream: true` (contract-2.md section 1.14). */
export const streamPathOf = (path: string): string => `${path}/stream`

/** Returns a pattern for one of these paths that captures its id. */
export const patternOf = (path: string, id = '[\\w-]+'): RegExp => new RegExp(`^${path.replace('{id}', `(${id})`)}$`)

/** Returns the path of a request, without its query. */
export const pathOf = (req: IncomingMessage): string => (req.url ?? '/').split('?', 1)[0] ?? '/'
