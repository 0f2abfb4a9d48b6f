import { z } from 'zod'
import type { ZodOpenApiOperationObject, ZodOpenApiPathsObject } from 'zod-openapi'
import { AuditEvent, ExportAudit } from '../audit/schema.ts'
import { FileUploaded, UploadFile } from '../client/schema.ts'
import { ok } from '../lib/fields.ts'
import { MediaCreated, MediaId } from '../media/schema.ts'
import { errorReference, headers } from './openapi-parts.ts'
import { STREAM_PATHS } from './openapi-streams.ts'
import { AUDIT_EXPORT_PATH, CONTENT_PATH, MEDIA_PATH, SPACE_UPLOAD_PATH } from './paths.ts'

const AUDIT_EXAMPLE: z.output<typeof AuditEvent> = {
  id: '06Kq3x9dTn2Vb8Lw5RzYcA',
  at: '2026-11-25T10:00:00.000Z',
  action: 'member.update',
  actor: { id: '0eJx3aQ9mZr7TbYc2LwVn5', name: 'Ada', kind: 'token', tokenId: '8sWv2LwVn50eJx3aQ9mZr7' },
  target: '2LwVn58sWv0eJx3aQ9mZr7',
  ip: '192.0.2.7',
  requestId: 'k3Jx0aQ9mZr7TbYc2LwVn5',
  changes: { role: { from: 'member', to: 'admin' } },
}

const Alive = z.object({
  success: z.literal(true).describe('Always true'),
  status: z.literal('ok').describe('The server answers'),
})

const Ready = Alive.extend({
  status: z.enum(['ok', 'paused']).describe('`paused`: requests are served, but no run begins and no mission fires'),
  notices: z
    .enum(['listening', 'polling'])
    .optional()
    .describe('With PostgreSQL: whether this server receives the notices of others, or polls four times a second'),
  writes: z
    .enum(['disk_full', 'read_only'])
    .optional()
    .describe(
      'Reason for which the database refuses writes. Absent while it accepts them. Reads are served in either case',
    ),
})

const Version = ok({
  name: z.literal('muster').describe('Name of the service'),
  version: z.string().describe('Version of the service'),
})

const health = (
  operationId: string,
  summary: string,
  success: string,
  failure?: string,
): { get: ZodOpenApiOperationObject } => ({
  get: {
    operationId,
    summary,
    description: 'Needs no token.',
    tags: ['health'],
    security: [],
    responses: {
      200: {
        description: success,
        headers: headers(),
        content: { 'application/json': { schema: failure ? Ready : Alive } },
      },
      ...(failure && { 503: errorReference('503', failure) }),
      default: errorReference('default'),
    },
  },
})

const IS_READY = 'The server can serve requests'
const NOT_READY = 'The server is stopping, or its database cannot be used'

/** Paths that trpc-to-openapi does not know: event streams, uploads, downloads and health checks. */
export const PATHS: ZodOpenApiPathsObject = {
  ...STREAM_PATHS,
  [MEDIA_PATH]: {
    post: {
      summary: 'Upload a file',
      description: 'At most 25 MiB. The server detects its type from its content.',
      requestBody: {
        required: true,
        content: {
          'multipart/form-data': {
            schema: z.object({ file: z.string().meta({ format: 'binary' }).describe('The file') }),
          },
        },
      },
      responses: { 200: { description: 'Success', content: { 'application/json': { schema: MediaCreated } } } },
    },
  },
  [SPACE_UPLOAD_PATH]: {
    post: {
      summary: 'Upload a file into a space',
      description: 'At most 1 MiB. `path` is the folder. An existing file is replaced.',
      requestParams: { query: UploadFile },
      requestBody: {
        required: true,
        content: {
          'multipart/form-data': {
            schema: z.object({ file: z.string().meta({ format: 'binary' }).describe('The file') }),
          },
        },
      },
      responses: { 200: { description: 'Success', content: { 'application/json': { schema: FileUploaded } } } },
    },
  },
  [AUDIT_EXPORT_PATH]: {
    get: {
      summary: 'Export the audit events of your organization',
      description:
        'Streams all matching events, newest first, one JSON object per line. The export itself becomes an event. Only ' +
        'admins can export.',
      requestParams: { query: ExportAudit },
      responses: {
        200: {
          description: 'Lines of JSON. The schema is that of each line.',
          content: { 'application/x-ndjson': { schema: AuditEvent, example: AUDIT_EXAMPLE } },
        },
      },
    },
  },
  [CONTENT_PATH]: {
    get: {
      summary: 'Get the content of an uploaded file',
      description: 'Pictures are sent to be displayed, other files to be saved.',
      requestParams: { path: MediaId },
      responses: {
        200: { description: 'The bytes', content: { '*/*': { schema: z.string().meta({ format: 'binary' }) } } },
        206: {
          description: 'The bytes that `Range` asks for: one part, from an unchanged file if there is an `If-Range`',
          headers: headers('ETag'),
          content: { '*/*': { schema: z.string().meta({ format: 'binary' }) } },
        },
        304: { description: 'The answer still has the ETag of If-None-Match', headers: headers('ETag') },
      },
    },
  },
  '/healthz': health('isAlive', 'Check that the process is alive', 'The process is alive'),
  '/readyz': health('isReady', 'Check that the server can serve requests', IS_READY, NOT_READY),
  '/api/health': health('isHealthy', 'The same as /readyz', IS_READY, NOT_READY),
  '/api/version': {
    get: {
      operationId: 'getVersion',
      summary: 'Get the version of the service',
      description: 'Needs no token.',
      tags: ['health'],
      security: [],
      responses: {
        200: {
          description: 'Success',
          headers: headers(),
          content: {
            'application/json': { schema: Version, example: { success: true, name: 'muster', version: '1.2.0' } },
          },
        },
        default: errorReference('default'),
      },
    },
  },
}
