import { z } from 'zod'
import { ok, timestamp } from '../lib/fields.ts'
import { nextCursor, pageInput } from '../lib/page.ts'

export const MediaId = z.object({ id: z.string().describe('The media') })
export const ListMedia = z.object(pageInput)

/** Types that browsers may display inline and models can see (contract.md section 7). */
export const PICTURES: ReadonlySet<string> = new Set(['image/png', 'image/jpeg', 'image/gif', 'image/webp'])

/** An uploaded file (contract.md section 7). Its type is detected from its content, not its name. */
export const Media = z
  .object({
    id: z.string().describe('Id of the file'),
    name: z.string().describe('Name of the file'),
    mimeType: z.string().describe('Type of the file, found from its content'),
    size: z.int().describe('Size of the file (bytes)'),
    organizationId: z.string().describe('Id of the organization that the file belongs to'),
    userId: z.string().describe('Id of the user who uploaded it'),
    url: z.string().describe('Path of its content'),
    createdAt: timestamp.describe('Time at which the file was uploaded'),
  })
  .meta({ id: 'Media', description: 'An uploaded file' })

export const MediaResponse = ok({ media: Media })
export const MediaCreated = ok({
  id: z.string().describe('Id of the file'),
  name: z.string().describe('Name of the file'),
  media: Media,
})
export const MediaListResponse = ok({ media: z.array(Media).describe('Files on this page'), nextCursor })
export const MediaDeleted = ok({ message: z.string().describe('Confirmation for people') })
