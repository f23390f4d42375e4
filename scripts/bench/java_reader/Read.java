import com.sun.management.OperatingSystemMXBean;
import java.io.File;
import java.io.IOException;
import java.lang.management.ManagementFactory;
import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import org.apache.tsfile.block.column.Column;
import org.apache.tsfile.enums.TSDataType;
import org.apache.tsfile.file.metadata.AbstractAlignedChunkMetadata;
import org.apache.tsfile.file.metadata.ChunkMetadata;
import org.apache.tsfile.file.metadata.IChunkMetadata;
import org.apache.tsfile.file.metadata.IDeviceID;
import org.apache.tsfile.file.metadata.TableSchema;
import org.apache.tsfile.read.TsFileReader;
import org.apache.tsfile.read.TsFileSequenceReader;
import org.apache.tsfile.read.common.Chunk;
import org.apache.tsfile.read.common.Field;
import org.apache.tsfile.read.common.Path;
import org.apache.tsfile.read.common.block.TsBlock;
import org.apache.tsfile.read.expression.QueryExpression;
import org.apache.tsfile.read.query.dataset.QueryDataSet;
import org.apache.tsfile.read.query.dataset.ResultSet;
import org.apache.tsfile.read.reader.IPageReader;
import org.apache.tsfile.read.reader.chunk.AlignedChunkReader;
import org.apache.tsfile.read.reader.chunk.ChunkReader;
import org.apache.tsfile.read.v4.ITsFileReader;
import org.apache.tsfile.read.v4.TsFileReaderBuilder;
import org.apache.tsfile.write.schema.IMeasurementSchema;

/**
 * Reads all points of a file of doubles, several times, and times the last: {@code Read MODE PASSES
 * FILE}. Prints JSON: points, seconds, CPU seconds, sum.
 *
 * <p>{@code pages}: page by page into the library's column blocks, as the database's scan does; the
 * fastest way there is. {@code query}: row by row, the public interface.
 */
final class Read {
  private long points;
  private double sum;

  private Read() {}

  public static void main(String[] arguments) throws Exception {
    boolean pages = arguments[0].equals("pages");
    int passes = Integer.parseInt(arguments[1]);
    for (int pass = 1; pass <= passes; pass++) {
      Read read = new Read();
      long begin = System.nanoTime();
      long cpu = cpuTime();
      if (pages) {
        read.pages(arguments[2]);
      } else {
        read.query(arguments[2]);
      }
      double seconds = (System.nanoTime() - begin) / 1e9;
      double busy = (cpuTime() - cpu) / 1e9;
      if (pass == passes) {
        System.out.printf(
            "{\"points\": %d, \"seconds\": %.6f, \"cpu\": %.6f, \"sum\": %.17g}%n",
            read.points, seconds, busy, read.sum);
      }
    }
  }

  /** Of the process: collector and compiler count. */
  private static long cpuTime() {
    return ((OperatingSystemMXBean) ManagementFactory.getOperatingSystemMXBean()).getProcessCpuTime();
  }

  private void pages(String file) throws IOException {
    try (TsFileSequenceReader reader = new TsFileSequenceReader(file)) {
      for (IDeviceID device : reader.getAllDevices()) {
        Map<String, TSDataType> columns = reader.getMeasurement(device);
        if (columns.containsKey("")) {
          for (AbstractAlignedChunkMetadata chunk : reader.getAlignedChunkMetadata(device, true)) {
            aligned(reader, chunk);
          }
        } else {
          for (String column : columns.keySet()) {
            for (ChunkMetadata chunk : reader.getChunkMetadataList(new Path(device, column, false))) {
              add(new ChunkReader(reader.readMemChunk(chunk)).loadPageReaderList());
            }
          }
        }
      }
    }
  }

  private void aligned(TsFileSequenceReader reader, AbstractAlignedChunkMetadata chunk) throws IOException {
    Chunk times = reader.readMemChunk((ChunkMetadata) chunk.getTimeChunkMetadata());
    List<Chunk> values = new ArrayList<>();
    List<TSDataType> types = new ArrayList<>();
    for (IChunkMetadata each : chunk.getValueChunkMetadataList()) {
      values.add(reader.readMemChunk((ChunkMetadata) each));
      types.add(each.getDataType());
    }
    List<IPageReader> pages = new AlignedChunkReader(times, values).loadPageReaderList();
    for (IPageReader page : pages) {
      page.initTsBlockBuilder(types);
    }
    add(pages);
  }

  private void add(List<IPageReader> pages) throws IOException {
    for (IPageReader page : pages) {
      TsBlock block = page.getAllSatisfiedData();
      int rows = block.getPositionCount();
      for (int i = 0; i < block.getValueColumnCount(); i++) {
        Column column = block.getColumn(i);
        boolean nulls = column.mayHaveNull();
        for (int row = 0; row < rows; row++) {
          if (!nulls || !column.isNull(row)) {
            points++;
            sum += column.getDouble(row);
          }
        }
      }
    }
  }

  private void query(String file) throws Exception {
    List<TableSchema> tables;
    try (ITsFileReader reader = new TsFileReaderBuilder().file(new File(file)).build()) {
      tables = reader.getAllTableSchema();
      tables.removeIf(table -> table.getTableName().startsWith("root"));
      for (TableSchema table : tables) {
        table(reader, table);
      }
    }
    if (tables.isEmpty()) {
      tree(file);
    }
  }

  private void table(ITsFileReader reader, TableSchema table) throws Exception {
    List<String> names = new ArrayList<>();
    List<String> fields = new ArrayList<>();
    for (IMeasurementSchema column : table.getColumnSchemas()) {
      names.add(column.getMeasurementName());
      if (column.getType() == TSDataType.DOUBLE) {
        fields.add(column.getMeasurementName());
      }
    }
    try (ResultSet rows = reader.query(table.getTableName(), names, Long.MIN_VALUE, Long.MAX_VALUE)) {
      while (rows.next()) {
        for (String field : fields) {
          if (!rows.isNull(field)) {
            points++;
            sum += rows.getDouble(field);
          }
        }
      }
    }
  }

  private void tree(String file) throws IOException {
    try (TsFileSequenceReader sequence = new TsFileSequenceReader(file);
        TsFileReader reader = new TsFileReader(sequence)) {
      for (IDeviceID device : sequence.getAllDevices()) {
        ArrayList<Path> paths = new ArrayList<>();
        for (String column : sequence.getMeasurement(device).keySet()) {
          if (!column.isEmpty()) {
            paths.add(new Path(device, column, false));
          }
        }
        QueryDataSet rows = reader.query(QueryExpression.create(paths, null));
        while (rows.hasNext()) {
          for (Field field : rows.next().getFields()) {
            if (field != null && field.getDataType() != null) {
              points++;
              sum += field.getDoubleV();
            }
          }
        }
      }
    }
  }
}
