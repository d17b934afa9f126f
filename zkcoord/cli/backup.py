"""`zkcoord backup` and `zkcoord restore`: everything that zkcoord and the groups have in ZooKeeper, as a file."""

from __future__ import annotations

from datetime import UTC, datetime

import click

from zkcoord.cli.files import STANDARD, Progress, new_file, opened
from zkcoord.cli.options import Command, Settings, pass_settings
from zkcoord.cli.output import print_json, table, tell
from zkcoord.core.words import count, some
from zkcoord.errors import CorruptError, SchemaError, UsageError, ZkcoordError
from zkcoord.group_report import refuse_newer
from zkcoord.migrate import BlockingTree, current, history, new_tree_id, read_mark, served
from zkcoord.offsets import backup_file
from zkcoord.offsets.backup import saved
from zkcoord.offsets.backup_file import BackupWriter, Header, Saved
from zkcoord.offsets.readable import Readable
from zkcoord.offsets.restore import Restore, Restored, first_nodes
from zkcoord.operating.requesting import who
from zkcoord.operating.saying import say, warn, would_be_refused
from zkcoord.operating.words import cell
from zkcoord.tree.offset import decode_offset
from zkcoord.tree.paths import CANDIDATES, LEGACY, SCHEMA, Layout, Place, layout_named
from zkcoord.tree.record import decode_record
from zkcoord.tree.schema import Schema
from zkcoord.tree.snapshot import Kind, Read
from zkcoord.tree.state import decode_state
from zkcoord.tree.topic import decode_mark

COLUMNS = ("GROUP", "OFFSETS", "CREATED", "RAISED", "LOWERED", "KEPT", "OTHER-TOPIC", "NODES")
CODECS = {
    Place.OFFSET: decode_offset,
    Place.RECORD: decode_record,
    Place.STATE: decode_state,
    Place.MARK: decode_mark,
}


@click.command(cls=Command, example="zkcoord backup /var/backups/zkcoord.jsonl")
@click.argument("file", metavar="FILE")
@pass_settings
def backup(settings: Settings, file: str) -> None:
    """Write everything that zkcoord and the groups have in ZooKeeper to a new FILE.

    It only reads: coordinators and consumers may go on. The file appears after it was read again and checked. Nodes
    that belong to a session are left out. Offsets in Kafka are not saved. A node that cannot be parsed is saved as it
    is, and named. If the command may not read some nodes, it names them, and there is no backup.
    """
    if file == STANDARD:
        raise UsageError("a backup is checked when it is written: name a file")
    progress = Progress("saved")
    with settings.tree() as tree:
        before = tree.read([Read(SCHEMA)])
        layout, revision = _tree(tree)
        made = datetime.now(UTC).isoformat(timespec="seconds")
        header = Header(revision=revision, layout=layout.name, made=made, who=who())
        with new_file(file) as out:
            writer, readable = BackupWriter(out, header), Readable(tree.read, layout)
            for node in saved(readable.read, layout):
                _check_node(layout, node)
                writer.add(node)
                progress.add(1)
            readable.refuse("and there is no backup without them")
            if tree.read([Read(SCHEMA)]) != before:
                raise SchemaError("the tree was migrated while it was read: make the backup again")
            writer.end()
            out.flush()
            backup_file.check(out, file)
    document = {"file": file, "nodes": writer.nodes, "layout": layout.name, "revision": revision}
    tell(settings, document, f"{file}: {count(writer.nodes, 'node')} of a tree of layout {layout.name}")


def _tree(tree: BlockingTree) -> tuple[Layout, str]:
    """Return the tree's layout and revision. The revision is "" if there are only old consumers."""
    schema = current(tree)
    if schema is None:
        (groups,) = tree.read([Read(LEGACY.groups)])
        if not groups.exists:
            raise UsageError("there is nothing to save: neither /zkcoord nor /consumers")
        return LEGACY, ""
    refuse_newer(schema)
    _refuse_migrated(schema)
    return schema.place, schema.revision


def _refuse_migrated(schema: Schema) -> None:
    if read_mark(schema) is not None:
        raise SchemaError("a migration is in progress: end it first (`zkcoord migrate upgrade`)")


def _check_node(layout: Layout, node: Saved) -> None:
    address = layout.parse(node.path)
    codec = None if address is None else CODECS.get(address.place)
    if codec is not None:
        try:
            codec(node.data)
        except CorruptError as error:
            warn(f"{node.path}: {error}; it is saved as it is, an operator must mend it")


@click.command(cls=Command, example="zkcoord restore /var/backups/zkcoord.jsonl --group etl --dry-run")
@click.argument("file", metavar="FILE")
@click.option("--group", "names", metavar="G", multiple=True, help="Restore only this group; may be repeated.")
@click.option("--rewind", is_flag=True, help="Also set offsets back that are further in the tree than in the backup.")
@click.option("--dry-run", is_flag=True, help="Show what would be done, and what prevents it; write nothing.")
@pass_settings
def restore(settings: Settings, file: str, names: tuple[str, ...], rewind: bool, dry_run: bool) -> None:
    """Restore a backup: create what is missing in the tree, and set offsets forward to those of the backup.

    First stop all coordinators, and the consumers of the groups that are restored. The restore is refused while one of
    them is there; a dry run only reports it. Records, states and marks that are in the tree stay. No offset is set back
    unless --rewind is given. In the stores dual and kafka, an offset that is in the tree stays unless --rewind is
    given. Offsets of a topic that was created again after the backup are left out. At the end everything is read again
    and compared. If the restore breaks off, run it again.
    """
    with opened(file) as lines, settings.tree() as tree:
        header = backup_file.check(lines, file)
        layout = layout_named(header.layout)
        _check_tree(tree, header)
        running = _coordinators(tree)
        if running and not dry_run:
            raise UsageError(running)
        work = Restore(tree=tree, layout=layout, groups=names or None, rewind=rewind, dry_run=dry_run)
        work.survey(backup_file.nodes(lines))
        work.carry_out(backup_file.nodes(lines))
        if not dry_run:
            first_nodes(tree, backup_file.nodes(lines), layout, new_tree_id())
            again = Restore(tree=tree, layout=layout, groups=names or None, rewind=rewind, dry_run=True)
            again.survey(backup_file.nodes(lines))
            again.carry_out(backup_file.nodes(lines))
            _compare(again)
    _print(settings, work, running, dry_run)


def _check_tree(tree: BlockingTree, header: Header) -> None:
    """Raise SchemaError before anything is written if the tree does not fit the backup's layout and revision."""
    if header.revision and header.revision not in [revision.revision for revision in history()]:
        raise SchemaError(f"the backup is of revision {header.revision}, newer than this program: use the newer one")
    schema = current(tree)
    if schema is not None:
        refuse_newer(schema)
        _refuse_migrated(schema)
        alike = schema.revision == header.revision or {schema.revision, header.revision} <= set(served())
        if schema.layout != header.layout or not alike:
            raise SchemaError(
                f"the tree has layout {schema.layout} and revision {schema.revision}, the backup {header.layout} and"
                f" {header.revision or 'none'}: restore it into an empty chroot, or migrate the tree"
            )


def _coordinators(tree: BlockingTree) -> str:
    """Say that running coordinators prevent a restore, and who must act; "" if none runs."""
    (listed,) = tree.read([Read(CANDIDATES, Kind.CHILDREN)])
    if not listed.children:
        return ""
    return f"coordinators are running ({some(listed.children)}): whoever runs them stops them first"


def _compare(again: Restore) -> None:
    for obstacle in again.obstacles.values():
        raise UsageError(f"{obstacle}; then run it again")
    for name, found in sorted(again.done.items()):
        if found.nodes or found.created or found.raised or found.lowered:
            raise ZkcoordError(f"group {name} is not as restored: somebody wrote meanwhile; run it again")


def _print(settings: Settings, work: Restore, running: str, dry_run: bool) -> None:
    further, other_topic = "further in the tree, or may be so in Kafka", "of an earlier topic"
    for name, found in sorted(work.done.items()):
        for what, left in ((further, found.kept), (other_topic, found.other_topic)):
            if left.count:
                more = f" and {left.count - len(left.named)} more" if left.count > len(left.named) else ""
                some = ", ".join(map(str, left.named)) + more
                say("notice", f"group {name}: left as it is, since it is {what}: {some}")
        if found.in_kafka and found.created:
            say(
                "notice",
                f"group {name} keeps its offsets in Kafka, too: {count(found.created, 'offset')} that the tree has not"
                " will be as in the backup, and what was committed to Kafka since counts no more; `zkcoord offsets"
                f" verify {name}` shows it afterwards, `zkcoord group reset-offsets {name} --from-file` sets it",
            )
        if found.strangers_count and found.offsets:
            say(
                "notice",
                f"group {name} goes on from other programs' commits in Kafka, too, which a restore leaves alone: see"
                f" `zkcoord offsets verify {name}`; `zkcoord offsets import` of an export of it sets both stores",
            )
        if found.unreadable:
            warn(f"group {name}: {count(found.unreadable, 'node')} of the backup holds no offset, and is left out")
        if settings.json:
            obstacles = [each for each in (running, work.obstacles.get(name)) if each]
            print_json({"group": name, "dry_run": dry_run, **_document(found), "obstacles": obstacles})
    if not settings.json:
        rows = [[cell(name), *_document(found).values()] for name, found in sorted(work.done.items())]
        click.echo(table(COLUMNS, rows))
    for obstacle in filter(None, (running, *work.obstacles.values())):
        warn(would_be_refused(obstacle))
    if dry_run:
        say("notice", "nothing was written: --dry-run")


def _document(found: Restored) -> dict[str, int]:
    return {
        "offsets": found.offsets,
        "created": found.created,
        "raised": found.raised,
        "lowered": found.lowered,
        "kept": found.kept.count,
        "other_topic": found.other_topic.count,
        "nodes": found.nodes,
    }
