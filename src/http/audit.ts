import type { IncomingMessage, ServerResponse } from 'node:http'
import { Readable } from 'node:stream'
import { pipeline } from 'node:stream/promises'
import { ExportAudit } from '../audit/schema.ts'
import { startExport } from '../audit/service.ts'
import { requireScope } from '../auth/actor.ts'
import { asRequested, type Context } from '../trpc.ts'
import { checkQuery } from './unknown-names.ts'

/**
 * GET /api/v1/audit/export: streams events as lines of JSON. The database is read as fast as the client reads the
 * lines. The stream ends with the client's access.
 */
export async function exportAudit(context: Context, req: IncomingMessage, res: ServerResponse): Promise<void> {
  await checkQuery(context, req.url ?? '', Object.keys(ExportAudit.shape))
  const actor = await context.authenticate()
  requireScope(actor, 'audit:read')
  const { searchParams } = new URL(req.url ?? '/', 'http://localhost')
  const query = Object.fromEntries(
    Object.keys(ExportAudit.shape).map((name) => [name, searchParams.get(name) ?? undefined]),
  )
  const lines = await startExport(
    asRequested(context, actor),
    context.deps,
    ExportAudit.parse(query),
    req.method !== 'HEAD',
  )
  const day = context.deps.clock.now().toISOString().slice(0, 10)
  res.writeHead(200, {
    'Content-Type': 'application/x-ndjson; charset=utf-8',
    'Content-Disposition': `attachment; filename="audit-${day}.ndjson"`,
    'Cache-Control': 'private, no-cache',
    'X-Accel-Buffering': 'no',
  })
  if (req.method === 'HEAD') return void res.end()
  const access = context.streamTo(actor)
  await pipeline(Readable.from(lines, { highWaterMark: 1 }), res, { signal: access }).catch((error) => {
    res.destroy()
    // A client that disconnects causes no error.
    if (!access.aborted && !context.gone().aborted) throw error
  })
}
