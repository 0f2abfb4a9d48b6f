import { AppError, unavailable } from '../errors.ts'

/** Returns the 503 of a server without media storage. Retrying does not help: the operator must configure it. */
export const noMediaStore = () =>
  new AppError(503, 'Media storage is not configured', {
    detail: 'The operator has to set S3_BUCKET, or MEDIA_DIR to a folder that all servers share.',
  })

/** Returns the 500 of a media whose stored file has disappeared. A 404 would say that there is no such media. */
export const mediaLost = () =>
  new AppError(500, 'An unexpected error occurred', {
    cause: new Error(
      'The stored file of a media is missing: check that the folder or bucket is the right one and mounted, restore the ' +
        'file from a backup of it, or delete the media',
    ),
    detail:
      'The stored file of this media is missing. Ask the operator to restore it (MEDIA_DIR or S3_BUCKET), or upload it again.',
  })

/** Returns the 503 of a disk without space for an upload. */
export const diskFull = (cause: unknown) =>
  new AppError(503, 'Service temporarily unavailable. Please retry.', {
    cause,
    headers: { 'Retry-After': '60' },
    detail: 'The disk of the media storage is full. The operator has to free space.',
  })

/** Returns the 503 of a folder for media that the operating system does not let the server use. */
export const mediaUnusable = (cause: unknown, code: string) =>
  new AppError(503, 'Service temporarily unavailable. Please retry.', {
    cause,
    headers: { 'Retry-After': '60' },
    detail: `The media storage cannot be used (${code}). The operator has to check its folder (MEDIA_DIR) and its permissions.`,
  })

/** Returns the 503 of a bucket that refuses a request of the server. */
export const bucketUnusable = (cause: unknown, code: string) =>
  new AppError(503, 'Service temporarily unavailable. Please retry.', {
    cause,
    headers: { 'Retry-After': '60' },
    detail: `The media storage cannot be used (${code}). The operator has to check the bucket (S3_BUCKET), its address, the access key and the clock of the server.`,
  })

/** Returns the 503 of a bucket that does not answer, or not in time. */
export const bucketAway = (cause: unknown, code: string) =>
  unavailable(
    cause,
    `The media storage does not answer (${code}). Repeat the request in a moment; if that does not help, the operator has to ` +
      'check the bucket and its address (S3_ENDPOINT).',
  )
