import { z } from 'zod'
import { ok, queryInt, timestamp } from '../lib/fields.ts'
import { nextCursor } from '../lib/page.ts'

/** All types of events (contract-2.md section 5.2). */
const EVENT_TYPES = [
  'task.created',
  'task.updated',
  'task.status_changed',
  'task.completed',
  'task.assigned',
  'execution.started',
  'execution.completed',
  'execution.failed',
  'execution.cancelled',
  'execution.waiting',
  'approval.created',
  'approval.decided',
  'approval.expired',
  'chat.needs_attention',
  'mission.run_failed',
  'mission.paused',
  'mission.skipped',
  'budget.warning',
  'budget.exceeded',
  'agent.created',
  'agent.updated',
  'agent.archived',
  'webhook.disabled',
] as const

const KINDS = [...new Set(EVENT_TYPES.map((type) => type.split('.', 1)[0]))]

const PATTERNS: ReadonlySet<string> = new Set([...EVENT_TYPES, ...KINDS.map((kind) => `${kind}.*`), '*'])

/** Returns whether a text is a pattern of event types. */
export const isPattern = (text: string): boolean => PATTERNS.has(text)

export const PATTERN_DETAIL = `A pattern is *, one of ${KINDS.map((kind) => `${kind}.*`).join(', ')}, or one of ${EVENT_TYPES.join(', ')}.`

/** Returns whether a type of event matches one of the patterns. */
export const matches = (patterns: readonly string[], type: string): boolean =>
  patterns.some((pattern) => pattern === '*' || pattern === type || pattern === `${type.split('.', 1)[0]}.*`)

const types = z
  .string()
  .max(2_000)
  .transform((text) =>
    text
      .split(',')
      .map((part) => part.trim())
      .filter(Boolean),
  )
  .refine((patterns) => patterns.every(isPattern), {
    error: 'Invalid types. Must be patterns of events, separated by commas',
    params: { detail: PATTERN_DETAIL },
  })

/** GET /events (contract-2.md section 5.4). */
export const ListEvents = z.object({
  since: z.string().max(100).optional().describe('`cursor` of the answer before. Default: from the oldest event'),
  types: types.optional().describe('Only these types, separated by commas, for example `task.*,execution.failed`'),
  limit: queryInt(1, 1000).optional().describe('Maximum number of events. Default: 100'),
})

/** GET /events as a stream. */
export const FollowEvents = ListEvents.omit({ limit: true }).extend({
  lastEventId: z.string().max(100).nullish().describe('Id of the last event received. It wins over `since`'),
})

/** An event of an organization (contract-2.md section 5.2). */
export const OrganizationEvent = z
  .object({
    id: z.string().describe('Identifies the event; `webhook-id` of its deliveries'),
    type: z.string().describe('Type of the event, for example `task.completed`'),
    timestamp: timestamp.describe('Time of the event'),
    sequence: z.int().describe('Number that grows from event to event, unique in the organization'),
    organizationId: z.string().describe('The organization in which it happened'),
    data: z.unknown().describe('The changed resource as its own route shows it, without prompts, results and inputs'),
  })
  .meta({ id: 'OrganizationEvent', description: 'An event of the organization' })

export const EventsResponse = ok({
  events: z.array(OrganizationEvent).describe('The events, oldest first'),
  cursor: z.string().describe('Where the next request continues, as its `since`'),
  hasMore: z.boolean().describe('Whether more events follow at once'),
  nextCursor: nextCursor.describe('The cursor, as in other lists; null if no event follows yet'),
})
