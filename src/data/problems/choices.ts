/** Templates that training sees, those that it never sees, or both. */
export type TemplateChoice = 'seen' | 'held_out' | 'all';
export const TEMPLATE_CHOICES = ['seen', 'held_out', 'all'] as const satisfies readonly TemplateChoice[];
