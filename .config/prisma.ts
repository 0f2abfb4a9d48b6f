import { defineConfig } from 'prisma/config'

// `prisma generate` needs no schema engine, but tries to download one unless a binary is configured.
process.env.PRISMA_SCHEMA_ENGINE_BINARY ??= process.execPath

export default defineConfig({ schema: '../prisma/schema.prisma' })
