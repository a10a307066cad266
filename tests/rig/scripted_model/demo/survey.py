"""Counts the Rust code of a repository per top directory; writes a report and draws the lines as bars."""

import pathlib
import struct
import sys
import zlib

TITLE = "Survey"
WIDTH, BAR, GAP = 640, 28, 14
COLOURS = [(38, 98, 163), (214, 110, 42), (58, 140, 88), (140, 84, 160), (176, 54, 66), (90, 100, 110)]


def count(repository):
    """Returns rows of (directory, files, lines), longest first."""
    rows = {}
    for path in repository.rglob("*.rs"):
        top = path.relative_to(repository).parts[0]
        files, lines = rows.get(top, (0, 0))
        text = path.read_text(encoding="utf-8", errors="replace")
        rows[top] = (files + 1, lines + len(text.splitlines()))
    return sorted(((top, *both) for top, both in rows.items()), key=lambda row: -row[2])


def png(rows):
    """Draws the bars without any library: rows of RGB pixels, one filter byte each."""
    longest = max((lines for _, _, lines in rows), default=1) or 1
    height = GAP + len(rows) * (BAR + GAP)
    pixels = []
    for y in range(height):
        index, inside = divmod(y - GAP, BAR + GAP)
        drawn = 0
        if 0 <= index < len(rows) and inside < BAR:
            drawn = max(2, rows[index][2] * (WIDTH - 2 * GAP) // longest)
        colour = bytes(COLOURS[index % len(COLOURS)])
        white = b"\xff\xff\xff"
        pixels.append(b"\0" + white * GAP + colour * drawn + white * (WIDTH - GAP - drawn))

    def chunk(kind, body):
        return struct.pack(">I", len(body)) + kind + body + struct.pack(">I", zlib.crc32(kind + body))

    head = struct.pack(">IIBBBBB", WIDTH, height, 8, 2, 0, 0, 0)
    data = zlib.compress(b"".join(pixels), 9)
    return b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", head) + chunk(b"IDAT", data) + chunk(b"IEND", b"")


def svg(rows):
    """The same bars with their names."""
    longest = max((lines for _, _, lines in rows), default=1) or 1
    parts = []
    for index, (top, _, lines) in enumerate(rows):
        y = 40 + index * (BAR + GAP)
        red, green, blue = COLOURS[index % len(COLOURS)]
        drawn = max(2, lines * 380 // longest)
        parts.append(f'<text x="10" y="{y + 19}">{top}</text>')
        parts.append(f'<rect x="150" y="{y}" width="{drawn}" height="{BAR}" fill="rgb({red},{green},{blue})"/>')
        parts.append(f'<text x="{160 + drawn}" y="{y + 19}">{lines}</text>')
    height = 50 + len(rows) * (BAR + GAP)
    style = 'font-family="sans-serif" font-size="15"'
    body = "\n".join(parts)
    title = f'<text x="10" y="24" font-weight="bold">{TITLE}</text>'
    return f'<svg xmlns="http://www.w3.org/2000/svg" width="{WIDTH}" height="{height}" {style}>\n{title}\n{body}\n</svg>\n'


def report(rows):
    """The table in Markdown, with totals."""
    lines = [f"# {TITLE}", "", "| directory | files | lines |", "|---|---|---|"]
    lines += [f"| {top} | {files} | {count_} |" for top, files, count_ in rows]
    lines += ["", f"Together: {sum(row[1] for row in rows)} files, {sum(row[2] for row in rows)} lines.", ""]
    lines += ["![bars](lines.png)", ""]
    return "\n".join(lines)


def main():
    repository, outputs = pathlib.Path(sys.argv[1]), pathlib.Path(sys.argv[2])
    outputs.mkdir(parents=True, exist_ok=True)
    rows = count(repository)
    (outputs / "report.md").write_text(report(rows), encoding="utf-8")
    (outputs / "lines.svg").write_text(svg(rows), encoding="utf-8")
    (outputs / "lines.png").write_bytes(png(rows))
    print(f"{len(rows)} directories, {sum(row[1] for row in rows)} files, {sum(row[2] for row in rows)} lines of Rust")


main()
