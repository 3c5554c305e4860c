-- Never committed: its pages make the WAL longer.
INSERT INTO holdfast_meta (name, value) VALUES ('', zeroblob(:bytes))
