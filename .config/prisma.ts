import { defineConfig } from 'prisma/config'

// `prisma generate` needs no schema engine, but tries to download one unless it is told of a binary.
process.env.PRISMA_SCHEMA_ENGINE_BINARY ??= process.execPath

export default defineConfig({ schema: '../prisma/schema.prisma' })
