import { createReadStream } from 'node:fs'
import { stat } from 'node:fs/promises'
import { join } from 'node:path'
import type { Readable } from 'node:stream'
import {
  DeleteObjectCommand,
  GetObjectCommand,
  NoSuchKey,
  PutObjectCommand,
  paginateListObjectsV2,
  S3Client,
} from '@aws-sdk/client-s3'
import { unavailable } from '../errors.ts'
import type { Settings } from '../settings.ts'
import { createDrafts, HOUR } from './drafts.ts'
import type { MediaStorage } from './storage.ts'

const CONNECT_TIMEOUT = 5_000
/** How long nothing may come from the bucket (ms). */
const IDLE_TIMEOUT = 30_000

/**
 * Media in a bucket of S3, or of what speaks its protocol at S3_ENDPOINT. An upload is taken in under `folder` of this
 * machine, so that nothing half-uploaded ever comes to the bucket, and is sent on as a stream. What the bucket does not
 * answer is a 503.
 */
export async function createS3Storage(
  settings: Settings & { S3_BUCKET: string },
  folder: string,
): Promise<MediaStorage> {
  const { S3_BUCKET: Bucket, S3_REGION, S3_ENDPOINT, S3_ACCESS_KEY_ID, S3_SECRET_ACCESS_KEY } = settings
  const client = new S3Client({
    region: S3_REGION,
    // Servers other than AWS want the bucket in the path, and need not know the newer checksums.
    ...(S3_ENDPOINT && { endpoint: S3_ENDPOINT, forcePathStyle: true }),
    requestChecksumCalculation: 'WHEN_REQUIRED',
    responseChecksumValidation: 'WHEN_REQUIRED',
    ...(S3_ACCESS_KEY_ID &&
      S3_SECRET_ACCESS_KEY && {
        credentials: { accessKeyId: S3_ACCESS_KEY_ID, secretAccessKey: S3_SECRET_ACCESS_KEY },
      }),
    // It would write to the console otherwise.
    logger: { debug() {}, info() {}, warn() {}, error() {} },
    requestHandler: { connectionTimeout: CONNECT_TIMEOUT, socketTimeout: IDLE_TIMEOUT },
  })

  const draft = await createDrafts(join(folder, 'drafts'), false, async (path, id) => {
    const { size } = await stat(path)
    const Body = createReadStream(path)
    const command = new PutObjectCommand({ Bucket, Key: id, Body, ContentLength: size })
    try {
      await client.send(command)
    } catch (error) {
      refuse(error)
    } finally {
      // Of an upload that fails, nobody reads the rest.
      Body.destroy()
    }
  })

  return {
    draft,
    async read(id) {
      try {
        const { Body } = await client.send(new GetObjectCommand({ Bucket, Key: id }))
        // In Node it is one.
        return (Body as Readable | undefined) ?? null
      } catch (error) {
        if (error instanceof NoSuchKey) return null
        return refuse(error)
      }
    },
    async remove(id) {
      await client.send(new DeleteObjectCommand({ Bucket, Key: id })).catch(refuse)
    },
    async *list() {
      for await (const { Contents = [] } of paginateListObjectsV2({ client }, { Bucket })) {
        const before = Date.now() - HOUR
        yield Contents.flatMap(({ Key, LastModified }) =>
          Key && LastModified && LastModified.getTime() < before ? Key : [],
        )
      }
    },
  }
}

function refuse(cause: unknown): never {
  throw unavailable(cause)
}
