"""The bytes of a mail to a Message, and back to bytes with header fields of ours; mailboxes on disk.

Pure but for `mailboxes`, which reads files; nothing here raises because of what a mail contains.
Imports: errors and system. Start with message, whose `parse` reads the header, the MIME parts and the text.
"""
