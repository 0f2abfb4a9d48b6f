import { builder } from './builder.ts'

/** The answer of a deletion (contract-2.md section 1.17): clients drop the object with that id from their cache. */
export const Deletion = builder.objectRef<{ deletedId: string; message: string }>('Deletion').implement({
  description: 'What was deleted',
  fields: (t) => ({
    deletedId: t.exposeID('deletedId', {
      description: 'Id of the deleted object; the path of a file, the name of a provider',
    }),
    message: t.exposeString('message', { description: 'What was done, for people' }),
  }),
})
