import S3rver from '@20minutes/s3rver'
import { createFolder } from './folder.ts'

export type S3 = AsyncDisposable & {
  /** The settings of a service with this bucket. */
  env: Record<string, string>
  /** The folder of the bucket's objects. */
  folder: string
  /** Stops answering. */
  stop(): Promise<void>
}

const BUCKET = 'media'

/**
 * A server with the protocol of S3 on loopback, with one bucket in a temporary folder. `trusting` accepts any
 * signature, which lists need, because the server refuses theirs.
 */
export async function startS3({ trusting = false } = {}): Promise<S3> {
  const folder = await createFolder()
  const server = new S3rver({
    address: '127.0.0.1',
    port: 0,
    silent: true,
    directory: folder.path,
    allowMismatchedSignatures: trusting,
    configureBuckets: [{ name: BUCKET }],
  })
  const { port } = await server.run()
  let stopped: Promise<void> | undefined
  const stop = () => (stopped ??= server.close())
  return {
    env: {
      S3_BUCKET: BUCKET,
      S3_ENDPOINT: `http://127.0.0.1:${port}`,
      S3_ACCESS_KEY_ID: 'S3RVER',
      S3_SECRET_ACCESS_KEY: 'S3RVER',
    },
    folder: `${folder.path}/${BUCKET}`,
    stop,
    async [Symbol.asyncDispose]() {
      await stop()
      await folder[Symbol.asyncDispose]()
    },
  }
}
