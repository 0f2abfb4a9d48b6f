import { builder } from './builder.ts'

/** Result of a deletion (contract-2.md section 1.17): clients remove the object with that id from their cache. */
export const Deletion = builder.objectRef<{ deletedId: string; message: string }>('Deletion').implement({
  description: 'Result of a deletion',
  fields: (t) => ({
    deletedId: t.exposeID('deletedId', {
      description: 'Id of the deleted object; the path of a file, the name of a provider',
    }),
    message: t.exposeString('message', { description: 'Message for people' }),
  }),
})
