import type { z } from 'zod'
import { builder } from '../graphql/builder.ts'
import { argsFromZod, enumFromZod, parseArgs } from '../graphql/inputs.ts'
import { objectFromZod } from '../graphql/outputs.ts'
import { shows } from '../graphql/procedures.ts'
import { files } from './router.ts'
import * as schema from './schema.ts'

enumFromZod('FileEncoding', schema.Encoding, 'What the content of a file is written in')

const SpaceFile = objectFromZod('SpaceFile', schema.SpaceFile, 'A file of a space')
const FileContent = objectFromZod(
  'SpaceFileContent',
  schema.FileResponse.omit({ success: true }),
  'A file of a space with its content',
)

const FilePage = builder.objectRef<z.output<typeof schema.FilesResponse>>('SpaceFilePage').implement({
  description: 'A page of the files of a space, by path',
  fields: (t) => ({
    nodes: t.field({
      type: [SpaceFile],
      description: 'The files',
      extensions: { rows: 1 },
      resolve: ({ files }) => files,
    }),
    nextCursor: t.exposeString('nextCursor', { nullable: true, description: 'Where to go on; null at the end' }),
  }),
})

builder.queryFields((t) => ({
  spaceFiles: t.field({
    ...shows(files.list, { rows: 1000 }),
    type: FilePage,
    args: argsFromZod(schema.ListFiles),
    resolve: (_, args, { caller }) => caller.files.list(parseArgs(schema.ListFiles, args)),
  }),
  spaceFile: t.field({
    ...shows(files.get, { cost: 50 }),
    type: FileContent,
    nullable: true,
    args: argsFromZod(schema.FilePath),
    resolve: (_, args, { caller }) => caller.files.get(args),
  }),
}))

builder.mutationFields((t) => ({
  writeSpaceFile: t.field({
    ...shows(files.write),
    type: FileContent,
    args: argsFromZod(schema.WriteFile),
    resolve: (_, args, { caller }) => caller.files.write(args),
  }),
  deleteSpaceFile: t.string({
    ...shows(files.delete),
    args: argsFromZod(schema.FilePath),
    resolve: async (_, args, { caller }) => (await caller.files.delete(args)).message,
  }),
}))
