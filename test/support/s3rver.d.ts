declare module '@20minutes/s3rver' {
  type Options = {
    address: string
    port: number
    silent: boolean
    /** The parent folder of the buckets. */
    directory: string
    allowMismatchedSignatures: boolean
    configureBuckets: { name: string }[]
  }
  class S3rver {
    constructor(options: Options)
    run(): Promise<{ address: string; port: number }>
    close(): Promise<void>
  }
  export = S3rver
}
