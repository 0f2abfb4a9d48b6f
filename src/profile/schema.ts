import { z } from 'zod'
import { ok, requiredText, text } from '../lib/fields.ts'

export const UpdateProfile = z.object({
  name: requiredText(200).optional(),
  image: text(2000).nullable().optional().describe('Address of a picture'),
})

const organization = z.object({
  id: z.string(),
  name: z.string(),
  slug: z.string(),
  role: z.enum(['owner', 'admin', 'member']),
})

/** The caller (contract.md section 7). `organization` is the one that the token is of. */
export const Profile = z
  .object({
    id: z.string(),
    email: z.string(),
    name: z.string(),
    image: z.string().nullable(),
    organization,
    organizations: z.array(organization),
  })
  .meta({ id: 'Profile' })

export const ProfileResponse = ok({ profile: Profile })
