import { createReadStream } from 'node:fs'
import { stat } from 'node:fs/promises'
import { join } from 'node:path'
import type { Readable } from 'node:stream'
import { setTimeout as wait } from 'node:timers/promises'
import {
  CopyObjectCommand,
  DeleteObjectCommand,
  GetObjectCommand,
  HeadObjectCommand,
  NoSuchKey,
  NotFound,
  PutObjectCommand,
  paginateListObjectsV2,
  S3Client,
} from '@aws-sdk/client-s3'
import { createProxyFor, proxyVariables } from '../lib/net/proxies.ts'
import type { Settings } from '../settings.ts'
import { createDrafts, HOUR } from './drafts.ts'
import { bucketAway, bucketUnusable } from './errors.ts'
import type { MediaStorage, Trashed } from './storage.ts'

const CONNECT_TIMEOUT = 5_000
/** Maximum silence of the bucket (ms). */
const IDLE_TIMEOUT = 30_000

/** Number and delay (ms) of the repetitions of an upload. */
const RETRIES = 2
const RETRY_AFTER = 200

type BucketSettings = Settings & { S3_BUCKET: string }

/**
 * Stores media in an S3 bucket, or in an S3-compatible service at S3_ENDPOINT, as `<installation>/<id>`. An upload is
 * first stored under the local `folder`, so that no partial upload reaches the bucket, and then streamed on. Failures
 * of the bucket are a 503. Only keys with the prefix are listed, because the bucket may be shared.
 */
export async function createS3Storage(
  settings: BucketSettings,
  installationId: string,
  folder: string,
): Promise<MediaStorage> {
  const { S3_BUCKET: Bucket } = settings
  const client = openClient(settings)
  const own = (id: string) => `${installationId}/${id}`
  const inTrash = ({ id, day }: Trashed) => `${installationId}/trash/${day}/${id}`
  /** Returns the key of a file, and the key used by earlier versions. */
  const keysOf = (id: string) => [own(id), id]

  const drafts = await createDrafts(join(folder, 'drafts'), async (path, id) => {
    const { size } = await stat(path)
    // The client repeats other requests itself, but not one whose body is a stream.
    for (let left = RETRIES; ; left--) {
      const Body = createReadStream(path)
      try {
        return void (await client.send(new PutObjectCommand({ Bucket, Key: own(id), Body, ContentLength: size })))
      } catch (error) {
        if (!left || !isTransient(error)) refuse(error)
      } finally {
        // The body of a failed request is not read to its end.
        Body.destroy()
      }
      await wait(RETRY_AFTER)
    }
  })

  const drop = (Key: string) => client.send(new DeleteObjectCommand({ Bucket, Key })).catch(refuse)

  /** Moves an object. Returns whether it existed. */
  async function move(from: string, to: string): Promise<boolean> {
    const source = `${Bucket}/${from.split('/').map(encodeURIComponent).join('/')}`
    const copied = await ifAny(client.send(new CopyObjectCommand({ Bucket, Key: to, CopySource: source })))
    if (!copied) return false
    await drop(from)
    return true
  }

  async function* listKeys(Prefix: string) {
    try {
      for await (const { Contents = [] } of paginateListObjectsV2({ client }, { Bucket, Prefix })) yield Contents
    } catch (error) {
      refuse(error)
    }
  }

  async function* listTrash(): AsyncGenerator<Trashed[]> {
    const prefix = `${installationId}/trash/`
    for await (const some of listKeys(prefix))
      yield some.flatMap(({ Key = '' }) => {
        const [day = '', id = ''] = Key.slice(prefix.length).split('/')
        return day && id ? { id, day } : []
      })
  }

  return {
    ...drafts,
    async read(id, range) {
      for (const Key of keysOf(id)) {
        const found = await ifAny(
          client.send(
            new GetObjectCommand({ Bucket, Key, ...(range && { Range: `bytes=${range.start}-${range.end}` }) }),
          ),
        )
        // In Node the body is a Readable.
        if (found) return (found.Body as Readable | undefined) ?? null
      }
      return null
    },
    async has(id) {
      for (const Key of keysOf(id)) if (await ifAny(client.send(new HeadObjectCommand({ Bucket, Key })))) return true
      return false
    },
    async remove(id) {
      for (const Key of keysOf(id)) await drop(Key)
    },
    async trash(id, day) {
      for (const Key of keysOf(id)) if (await move(Key, inTrash({ id, day }))) return
    },
    async restore(id) {
      for await (const some of listTrash()) {
        const found = some.find((trashed) => trashed.id === id)
        if (found) return move(inTrash(found), own(id))
      }
      return false
    },
    async *list() {
      const prefix = `${installationId}/`
      for await (const some of listKeys(prefix)) {
        const before = Date.now() - HOUR
        yield some.flatMap(({ Key = '', LastModified }) => {
          const id = Key.slice(prefix.length)
          return id && !id.includes('/') && LastModified && LastModified.getTime() < before ? id : []
        })
      }
    },
    listTrash,
    async purge(trashed) {
      await drop(inTrash(trashed))
    },
  }
}

/** Services that require the bucket in the host name: those of Alibaba, Tencent, Huawei and Volcengine. */
const NEEDS_HOST = /\.(aliyuncs|myqcloud|myhuaweicloud|volces)\.com$/

function endpointOf(address: string, bucket: string): { endpoint: string; forcePathStyle: boolean } {
  const url = new URL(address)
  if (!NEEDS_HOST.test(url.hostname)) return { endpoint: address, forcePathStyle: true }
  // Their consoles show the address with the bucket.
  if (url.hostname.startsWith(`${bucket}.`)) url.hostname = url.hostname.slice(bucket.length + 1)
  return { endpoint: url.href, forcePathStyle: false }
}

function openClient(settings: BucketSettings): S3Client {
  const { S3_BUCKET, S3_REGION, S3_ENDPOINT, S3_ACCESS_KEY_ID, S3_SECRET_ACCESS_KEY } = settings
  const proxyEnv = proxyVariables(
    createProxyFor(settings),
    S3_ENDPOINT ?? `https://${S3_BUCKET}.s3.${S3_REGION}.amazonaws.com`,
  )
  return new S3Client({
    region: S3_REGION,
    // Services other than AWS mostly expect the bucket in the path, and may not support newer checksums.
    ...(S3_ENDPOINT && endpointOf(S3_ENDPOINT, S3_BUCKET)),
    requestChecksumCalculation: 'WHEN_REQUIRED',
    responseChecksumValidation: 'WHEN_REQUIRED',
    ...(S3_ACCESS_KEY_ID &&
      S3_SECRET_ACCESS_KEY && {
        credentials: { accessKeyId: S3_ACCESS_KEY_ID, secretAccessKey: S3_SECRET_ACCESS_KEY },
      }),
    // The default logger would write to the console.
    logger: { debug() {}, info() {}, warn() {}, error() {} },
    requestHandler: {
      connectionTimeout: CONNECT_TIMEOUT,
      socketTimeout: IDLE_TIMEOUT,
      ...(proxyEnv.HTTP_PROXY && {
        httpAgent: { keepAlive: true, maxSockets: 50, proxyEnv },
        httpsAgent: { keepAlive: true, maxSockets: 50, proxyEnv },
      }),
    },
  })
}

type Failure = { name?: string; code?: string; $metadata?: { httpStatusCode?: number } }

const statusOf = (error: unknown): number | undefined => (error as Failure).$metadata?.httpStatusCode

/** Returns whether a request may succeed if it is repeated: the bucket was busy, or the connection broke. */
function isTransient(error: unknown): boolean {
  const status = statusOf(error) ?? 500
  return status >= 500 || status === 429 || (error as Failure).name === 'RequestTimeout'
}

/** Returns null if an object does not exist. */
async function ifAny<T>(answer: Promise<T>): Promise<T | null> {
  try {
    return await answer
  } catch (error) {
    const isBucket = (error as Failure).name === 'NoSuchBucket'
    if (error instanceof NoSuchKey || error instanceof NotFound || (statusOf(error) === 404 && !isBucket)) return null
    return refuse(error)
  }
}

/** Returns the code of a bucket or of a connection that failed, or the status of a gateway before the bucket. */
function codeOf(error: unknown): string {
  const { code, name = '' } = error as Failure
  return code ?? (/^(Error|Unknown\w*)?$/.test(name) ? `HTTP ${statusOf(error)}` : name)
}

/** Throws the 503 of a failed request. If the bucket refuses it, the settings are wrong. */
function refuse(cause: unknown): never {
  const status = statusOf(cause) ?? 500
  throw status < 500 && !isTransient(cause)
    ? bucketUnusable(cause, (cause as Failure).name ?? `${status}`)
    : bucketAway(cause, codeOf(cause))
}
